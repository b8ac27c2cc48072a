from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

import qualityhub
from qualityhub.engine.errors import MachineryError
from qualityhub.engine.sandbox.bwrap import BwrapSandbox, programs
from qualityhub.engine.sandbox.interpreters import default_interpreter
from qualityhub.engine.sandbox.port import Command, Limits, Mount

TRUE = Command(argv=("/bin/true",))


def mounted():
    """Mounts of a stage, should one have got out of its keeper's namespace."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if line.split()[4] == "/tmp" or "lowerdir=/tmp/" in line]


def entries(folder):
    return sum(1 for _ in Path(folder).iterdir())


def group_folders():
    return [str(path) for path in Path("/sys/fs/cgroup").glob("**/qh-*")]


def processes_below(pid):
    found = []
    waiting = [pid]
    while waiting:
        here = waiting.pop()
        for task in Path(f"/proc/{here}/task").glob("*/children"):
            try:
                below = [int(word) for word in task.read_text().split()]
            except OSError:
                continue
            found += below
            waiting += below
    return found


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def until(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_three_hundred_runs_leave_nothing_behind(home, bwrap, tmp_path):
    bwrap.run(TRUE)
    launcher = bwrap._launcher.process.pid
    assert until(lambda: processes_below(launcher) == [])
    time.sleep(0.2)
    mounts, files = mounted(), entries("/proc/self/fd")
    launcher_files = entries(f"/proc/{launcher}/fd")
    before = sorted(path.name for path in home.iterdir())
    (tmp_path / "a").write_text("x")
    wanted = Command(
        argv=("/bin/sh", "-c", "echo y >a; echo z >/tmp/b"),
        mounts=(Mount("/work", tmp_path, "overlay"),),
        cwd="/work",
    )
    failed = []

    def some():
        for _ in range(150):
            seen = bwrap.run(wanted)
            if seen.exit_code != 0:
                failed.append(seen)

    threads = [threading.Thread(target=some) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failed == []
    assert until(lambda: processes_below(launcher) == [])
    assert until(lambda: entries(f"/proc/{launcher}/fd") == launcher_files)
    assert mounted() == mounts
    assert entries("/proc/self/fd") == files
    assert sorted(path.name for path in home.iterdir()) == before
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert until(lambda: not [name for name in group_folders() if f"/qh-{launcher}-" in name])


def test_closing_ends_running_commands(tmp_path):
    sandbox = BwrapSandbox(tmp_path)
    failures = []

    def run():
        try:
            sandbox.run(Command(argv=("/bin/sleep", "60"), limits=Limits(wall_s=60)))
        except MachineryError as error:
            failures.append(error.code)

    thread = threading.Thread(target=run)
    thread.start()
    assert until(
        lambda: sandbox._launcher and len(processes_below(sandbox._launcher.process.pid)) >= 3
    )
    below = processes_below(sandbox._launcher.process.pid)
    sandbox.close()
    thread.join(10)

    assert failures == ["sandbox.lost"]
    assert until(lambda: all(gone(pid) for pid in below))


def test_a_killed_caller_takes_its_worlds_along(tmp_path):
    script = textwrap.dedent(
        f"""
        import sys
        sys.path.insert(0, {str(Path(qualityhub.__file__).parent.parent)!r})
        from pathlib import Path
        from qualityhub.engine.sandbox.bwrap import BwrapSandbox
        from qualityhub.engine.sandbox.port import Command, Limits
        BwrapSandbox(Path({str(tmp_path)!r})).run(
            Command(argv=("/bin/sleep", "60"), limits=Limits(wall_s=60)))
        """
    )
    caller = subprocess.Popen([sys.executable, "-c", script])
    try:
        assert until(lambda: len(processes_below(caller.pid)) >= 4)
        below = processes_below(caller.pid)
    finally:
        caller.send_signal(signal.SIGKILL)
        caller.wait()
    assert until(lambda: all(gone(pid) for pid in below)), below


def test_a_dead_launcher_is_replaced(tmp_path):
    sandbox = BwrapSandbox(tmp_path)
    try:
        assert sandbox.run(TRUE).exit_code == 0
        first = sandbox._launcher.process
        first.kill()
        first.wait()
        assert sandbox.run(TRUE).exit_code == 0
        assert sandbox._launcher.process.pid != first.pid
    finally:
        sandbox.close()


def test_a_forked_process_gets_a_launcher_of_its_own(bwrap):
    bwrap.run(TRUE)
    ours = bwrap._launcher.process.pid
    answers = multiprocessing.get_context("fork").Queue()

    def child():
        seen = bwrap.run(TRUE)
        answers.put((seen.exit_code, bwrap._launcher.process.pid))
        bwrap.close()

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    code, theirs = answers.get(timeout=30)
    process.join()
    assert code == 0
    assert theirs != ours
    assert bwrap.run(TRUE).exit_code == 0
    assert bwrap._launcher.process.pid == ours


def test_it_needs_no_program_on_the_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert programs(), "the bundled program is found without PATH"
    sandbox = BwrapSandbox(tmp_path)
    try:
        assert sandbox.capability().usable
        assert sandbox.run(TRUE).exit_code == 0
    finally:
        sandbox.close()


def test_a_broken_program_is_a_reason_not_a_crash(tmp_path):
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'no namespaces today' >&2\nexit 1\n")
    program.chmod(0o755)
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    sandbox = BwrapSandbox(tmp_path / "home", program=program)
    seen = sandbox.capability()
    assert not seen.usable
    assert seen.reason
    assert seen.remedy
    sandbox.close()


def test_a_source_that_is_not_there_is_our_error(bwrap, tmp_path):
    wanted = Command(argv=("/bin/true",), mounts=(Mount("/x", tmp_path / "none"),))
    with pytest.raises(MachineryError, match="none"):
        bwrap.run(wanted)


def test_a_target_through_a_link_of_an_image_is_refused(bwrap, tmp_path):
    image = tmp_path / "image"
    (image / "etc").mkdir(parents=True)
    (image / "made").symlink_to("/tmp")
    wanted = Command(
        argv=("/bin/true",), base=image, mounts=(Mount("/made/deep", None, "scratch"),)
    )
    with pytest.raises(MachineryError, match="through a link"):
        bwrap.run(wanted)


def test_a_file_can_be_mounted_and_overlaid(bwrap, tmp_path):
    source = tmp_path / "file"
    source.write_text("before")
    source.chmod(0o644)
    seen = bwrap.run(
        Command(
            argv=(
                "/bin/sh",
                "-c",
                "echo after >/a/b; cat /a/b; (echo no >/a/c) 2>/dev/null; cat /a/c",
            ),
            mounts=(Mount("/a/b", source, "overlay"), Mount("/a/c", source)),
        )
    )
    assert seen.stdout == b"after\nbefore"
    assert source.read_text() == "before"


def test_a_working_directory_is_made(bwrap):
    seen = bwrap.run(Command(argv=("/bin/pwd",), cwd="/new/place"))
    assert seen.stdout == b"/new/place\n"


def test_a_kept_folder_comes_back_whole(bwrap, tmp_path):
    target = tmp_path / "kept"
    seen = bwrap.run(
        Command(
            argv=(
                "/bin/sh",
                "-c",
                "mkdir -p /made/deep/er; echo x >/made/deep/er/f; ln -s f /made/deep/er/l; chmod 751 /made/deep",
            ),
            mounts=(Mount("/made", None, "scratch"),),
            keep=target,
            keep_from="/made",
        )
    )
    assert seen.exit_code == 0
    assert (target / "deep/er/f").read_text() == "x\n"
    assert (target / "deep/er/l").readlink() == Path("f")
    assert (target / "deep").stat().st_mode & 0o777 == 0o751


def test_a_failed_command_keeps_nothing(bwrap, tmp_path):
    target = tmp_path / "kept"
    seen = bwrap.run(
        Command(
            argv=("/bin/sh", "-c", "echo x >/made/f; exit 3"),
            mounts=(Mount("/made", None, "scratch"),),
            keep=target,
            keep_from="/made",
        )
    )
    assert seen.exit_code == 3
    assert not target.exists()


def test_the_interpreter_runs_from_its_own_place(bwrap):
    python = default_interpreter()
    seen = bwrap.run(
        Command(argv=(str(python.path), "-c", "import ssl, sqlite3, sys; print(sys.base_prefix)"))
    )
    assert seen.stdout.decode().strip() == str(python.prefix), seen.stderr
