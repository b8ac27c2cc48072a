"""Input, output, exit codes and files travel as the port says."""

from __future__ import annotations

import hashlib
import os
import secrets
import signal
import threading

from qualityhub.engine.sandbox.conformance.kit import QUICK, Kit, check, host_file, told
from qualityhub.engine.sandbox.port import MIB, Command, Limits, Mount


@check
def check_stdin(kit: Kit) -> str:
    """Standard input arrives whole and ends; a command that does not read it is no error."""
    data = os.urandom(MIB)
    seen = kit.run(
        "import sys,hashlib\nprint(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())", stdin=data
    )
    if seen.stdout.decode().strip() != hashlib.sha256(data).hexdigest():
        return f"it arrived changed: {told(seen)}"
    ignored = kit.run("import os; os.close(0); print('fine')", stdin=data)
    if ignored.stdout != b"fine\n":
        return f"ignoring it failed: {told(ignored)}"
    empty = kit.run("import sys; print(len(sys.stdin.read()))")
    return "" if empty.stdout == b"0\n" else f"without input it read {empty.stdout!r}"


@check
def check_environment_is_clean(kit: Kit) -> str:
    """The command sees its own environment and nothing of ours, process 1 included."""
    secret = "QH_CONFORMANCE_" + secrets.token_hex(8).upper()
    os.environ[secret] = secret
    try:
        seen = kit.ask(
            "import json,os\n"
            "try: one=open('/proc/1/environ','rb').read().decode('latin1')\n"
            "except OSError: one=''\n"
            "print(json.dumps([dict(os.environ), one]))",
            env={**kit.env, "MINE": "a b=c\nd", "LD_LIBRARY_PATH": "/nowhere"},
        )
    finally:
        del os.environ[secret]
    inside, first = seen
    if secret in first or secret in inside:
        return "a variable of ours came along"
    if inside.get("MINE") != "a b=c\nd":
        return f"its own variable arrived as {inside.get('MINE')!r}"
    extra = set(inside) - {*kit.env, "MINE", "LD_LIBRARY_PATH", "PWD", "LC_CTYPE"}
    # A shell that starts the command leaves these.
    extra -= {"OLDPWD", "_", "SHLVL"} if kit.sandbox.name == "container" else set()
    return f"unasked variables: {sorted(extra)}" if extra else ""


@check
def check_umask_cwd_and_hostname(kit: Kit) -> str:
    """Mask, working directory and host name are as asked."""
    seen = kit.ask(
        "import json,os,socket\n"
        "m=os.umask(0); print(json.dumps([m, os.getcwd(), socket.gethostname()]))",
        umask=0o077,
        cwd="/tmp",  # noqa: S108
        hostname="somewhere",
    )
    wanted = [0o077, "/tmp", "somewhere"]  # noqa: S108
    return "" if seen == wanted else f"they were {seen}"


@check
def check_bytes_that_are_no_text(kit: Kit) -> str:
    """Output that is no UTF-8 arrives byte for byte; so do such arguments."""
    seen = kit.run(
        "import os,sys\nos.write(1,bytes(range(256))); os.write(2,os.fsencode(sys.argv[1]))",
        os.fsdecode(b"\xff\xfe"),
    )
    if seen.stdout != bytes(range(256)):
        return f"it arrived as {seen.stdout[:40]!r}"
    return "" if seen.stderr == b"\xff\xfe" else f"the argument arrived as {seen.stderr!r}"


@check
def check_exit_codes_and_signals(kit: Kit) -> str:
    """Exit codes, signals and missing programs are results and told apart."""
    code = kit.run("raise SystemExit(42)")
    if (code.exit_code, code.signal) != (42, None):
        return f"exit 42 came back as {told(code)}"
    killed = kit.run("import os,signal; os.kill(os.getpid(),signal.SIGSEGV)")
    if (killed.exit_code, killed.signal) != (None, int(signal.SIGSEGV)):
        return f"a segmentation fault came back as {told(killed)}"
    missing = kit.sandbox.run(
        Command(argv=("/no/such/program",), base=kit.base, env=kit.env, limits=QUICK)
    )
    good = missing.exit_code == 127 and not missing.timed_out
    return "" if good else f"a missing program came back as {told(missing)}"


@check
def check_collect_follows_no_link(kit: Kit) -> str:
    """Regular files come back, cut at the cap; links, folders, pipes and missing ones do not."""
    with host_file(kit, b"of the host") as path:
        seen = kit.run(
            "import os,sys\n"
            "open('/mine/plain','w').write('x'*100); os.symlink(sys.argv[1],'/mine/link')\n"
            "os.symlink('/etc/passwd','/mine/link2')\n"
            "os.mkfifo('/mine/pipe'); os.mkdir('/mine/dir')\n"
            "os.symlink('/mine','/mine/loop'); os.chmod('/mine/plain',0)\n"
            "os.symlink(os.path.dirname(sys.argv[1]),'/mine/up')",
            str(path),
            mounts=(Mount("/mine", None, "scratch"),),
            collect=(
                "/mine/plain",
                "/mine/link",
                "/mine/link2",
                "/mine/pipe",
                "/mine/dir",
                "/mine/loop/plain",
                "/mine/up/file",
                "/mine/none",
                "/mine/../mine/../../etc/hostname-none",
            ),
            limits=Limits(wall_s=30, collect_bytes=64),
        )
    return "" if seen.collected == {"/mine/plain": b"x" * 64} else f"came back: {seen.collected}"


@check
def check_collect_after_timeout(kit: Kit) -> str:
    """Files can be read back from a command that the wall clock ended."""
    seen = kit.run(
        "import time; open('/tmp/a','w').write('kept'); time.sleep(60)",
        collect=("/tmp/a",),  # noqa: S108
        limits=Limits(wall_s=2),
    )
    return "" if seen.collected == {"/tmp/a": b"kept"} else f"came back: {seen.collected}"  # noqa: S108


@check
def check_several_at_once(kit: Kit) -> str:
    """Commands from several threads do not meet."""
    problems: list[str] = []

    def one(number: int) -> None:
        for _ in range(3):
            seen = kit.run(
                "import sys,os\nassert os.listdir('/mine')==[]\n"
                "open('/mine/a','w').write(sys.argv[1])\nprint(sys.argv[1])",
                str(number),
                mounts=(Mount("/mine", None, "scratch"),),
                collect=("/mine/a",),
            )
            if seen.stdout.decode().strip() != str(number) or seen.collected != {
                "/mine/a": str(number).encode()
            }:
                problems.append(told(seen))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return "; ".join(problems[:2])


@check
def check_usage_is_reported(kit: Kit) -> str:
    """Seconds and memory are in the right order of magnitude."""
    seen = kit.run(
        "import time\na=bytearray(b'x')*(60<<20)\nend=time.process_time()+0.5\n"
        "while time.process_time()<end: pass"
    )
    if seen.exit_code != 0:
        return told(seen)
    if not 0.3 <= seen.cpu_s <= 5 or seen.wall_s < 0.4:
        return f"{seen.cpu_s} CPU seconds in {seen.wall_s} s"
    peak = seen.peak_memory_bytes
    return "" if peak == 0 or 50 * MIB <= peak <= 400 * MIB else f"a peak of {peak} bytes"


@check
def check_words_cannot_become_options(kit: Kit) -> str:
    """A NUL byte or broken text in an argument or a variable is a result, and smuggles nothing."""
    for argv, env in (
        ((kit.python, "-c", "pass\0--bind\0/\0/host"), kit.env),
        ((kit.python, "-c", "pass"), {**kit.env, "A": "x\0--bind\0/\0/host"}),
        ((kit.python, "-c", "pass"), {**kit.env, "A=B": "x"}),
        ((kit.python, "-c", "pass"), {**kit.env, "A": "\ud800"}),
        ((), kit.env),
    ):
        seen = kit.sandbox.run(Command(argv=argv, env=env, base=kit.base, limits=QUICK))
        if seen.exit_code != 126:
            return f"it came back as {told(seen)}"
    dashes = kit.sandbox.run(
        Command(argv=("--bind", "/", "/"), env=kit.env, base=kit.base, limits=QUICK)
    )
    return "" if dashes.exit_code == 127 else f"options as a program: {told(dashes)}"
