"""Hostile programs: each ends as a plain result, and the host is as it was before."""

from __future__ import annotations

import importlib.util
import os
import secrets
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from qualityhub.engine.sandbox import idmaps
from qualityhub.engine.sandbox.interpreters import default_interpreter
from qualityhub.engine.sandbox.port import Command, Mount
from qualityhub.engine.sandbox.served import serve_key

REPOSITORY = Path(__file__).resolve().parents[3]


def _beside(name):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


hostile = _beside("hostile")
host = _beside("host")
SERVER_MARK = secrets.token_hex(12)
PYTHON_CASES = [case for case in hostile.CASES if case.file.endswith(".py")]


def _name(case):
    return case.name


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    """A folder of the host that anyone may enter: permissions must not be what protects it."""
    folder = tmp_path_factory.mktemp("ground")
    for place in (folder, folder.parent, folder.parent.parent):
        place.chmod(0o755)
    (folder / "ours").mkdir()
    (folder / "ours/program.py").write_text("print('ours')\n")
    (folder / "ours/program.py").chmod(0o666)
    (folder / "ours").chmod(0o777)
    return folder


@pytest.fixture
def ours(ground):
    """Our own folders in a world, and that they are as they were."""
    yield tuple(Mount(target, ground / "ours") for target in ("/qh/programs", "/qh/layer"))
    assert [path.name for path in (ground / "ours").iterdir()] == ["program.py"]
    assert (ground / "ours/program.py").read_text() == "print('ours')\n"


def _is_hard(sandbox):
    return sandbox.capability().limits["memory_bytes"] == "hard"


@pytest.mark.parametrize("case", hostile.CASES, ids=_name)
def test_a_world_of_its_own_holds_it(case, bwrap, home, ground, ours):
    python = str(default_interpreter().path)
    assert bwrap.run(Command(argv=("/bin/true",))).exit_code == 0
    launcher = bwrap._launcher.process.pid
    mark = secrets.token_hex(12)

    def look():
        return host.look(home, mark, (launcher,), idmaps.current().owner)

    with hostile.bait(ground, mark, os.getpid(), launcher) as laid:
        before = look()
        seen = bwrap.run(hostile.command(case, python, laid, ours))
        found = hostile.problems(case, seen, hard=_is_hard(bwrap)) + host.settled(before, look)
    assert found == []
    assert bwrap._launcher.process.pid == launcher
    assert bwrap.run(Command(argv=("/bin/echo", "next"))).stdout == b"next\n"


@pytest.fixture(scope="module")
def servers(bwrap):
    """Fork servers by what their commands have in common; they outlive what they served."""
    running = {}

    def server_of(command):
        key = serve_key(command)
        if key not in running:
            running[key] = bwrap.serve(command)
        return running[key]

    yield server_of
    for server in running.values():
        server.close()


@pytest.mark.parametrize("case", PYTHON_CASES, ids=_name)
def test_a_fork_server_holds_it(case, bwrap, home, ground, ours, servers):  # noqa: PLR0917 - fixtures
    python = str(default_interpreter().path)
    assert bwrap.run(Command(argv=("/bin/true",))).exit_code == 0
    launcher = bwrap._launcher.process.pid

    def look():
        return host.look(home, SERVER_MARK, (launcher,), idmaps.current().owner)

    with hostile.bait(ground, secrets.token_hex(12), os.getpid(), launcher) as laid:
        wanted = hostile.served(case, python, laid, ours, mark=SERVER_MARK)
        calm = replace(wanted, argv=(*wanted.argv[:4], CALM), stdin=b"", collect=())
        server = servers(wanted)
        untouched = server.run(calm)
        before = look()
        seen = server.run(wanted)
        found = hostile.problems(case, seen, hard=_is_hard(bwrap)) + host.settled(before, look)
        after = server.run(calm)
    assert found == []
    assert untouched.exit_code == 0, untouched
    assert (after.exit_code, after.stdout) == (0, untouched.stdout), after.stderr


CALM = (
    "import json, os, resource, signal, sys\n"
    "print(json.dumps([\n"
    "    sorted(sys.modules), sorted(os.environ.items()), os.getcwd(), os.getpid(), os.getuid(),\n"
    "    sorted(os.listdir('/tmp') + os.listdir('/logs') + os.listdir('/dev/shm')),\n"
    "    sorted(os.listdir('/proc/self/fd')), sorted(sys.path), len(os.listdir('/proc')),\n"
    "    [resource.getrlimit(kind) for kind in range(16)],\n"
    "    [str(signal.getsignal(n)) for n in range(1, 65)], open('/proc/loadavg').read().split('/')[0] and '',\n"
    "    [line for line in open('/proc/self/status') if line.startswith(('Cap', 'Sig', 'Sec', 'NoNew', 'Uid'))],\n"
    "]))"
)
"""What one trial could leave to the next in the same server."""


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ("truncate -s 1T /made/sparse", "larger than the disk limit"),
        (
            "head -c 6000000 /dev/zero >/made/f; for i in 1 2 3; do ln /made/f /made/l$i; done",
            "larger than the disk limit",
        ),
        (
            "cd /made; i=0; while [ $i -lt 300 ]; do mkdir d; cd d; i=$((i+1)); done",
            "nested more than",
        ),
    ],
)
def test_a_build_that_leaves_more_than_it_may_fails_and_keeps_nothing(bwrap, tmp_path, made, why):
    wanted = Command(
        argv=("/bin/sh", "-c", made),
        mounts=(Mount("/made", None, "scratch"),),
        limits=replace(hostile.LONGER, output_bytes=100),
        keep=tmp_path / "kept",
        keep_from="/made",
    )
    seen = bwrap.run(wanted)
    assert seen.exit_code == 1
    assert why in seen.stderr.decode()
    assert not (tmp_path / "kept").exists()


def test_a_build_keeps_nothing_that_is_no_file_folder_or_link(bwrap, tmp_path):
    made = (
        "cd /made; mkfifo pipe; ln -s /etc/passwd link; ln -s ../../../../out climb; echo x >plain;"
        " chmod 6755 plain; mkdir 'a\nb'; echo y >'a\nb/-rf'"
    )
    wanted = Command(
        argv=("/bin/sh", "-c", made),
        mounts=(Mount("/made", None, "scratch"),),
        limits=hostile.LONGER,
        keep=tmp_path / "kept",
        keep_from="/made",
    )
    assert bwrap.run(wanted).exit_code == 0
    kept = tmp_path / "kept"
    found = sorted(str(path.relative_to(kept)) for path in kept.rglob("*"))
    assert found == ["a\nb", "a\nb/-rf", "climb", "link", "plain"]
    assert (kept / "link").readlink() == Path("/etc/passwd")
    assert (kept / "plain").stat().st_mode & 0o7777 == 0o755


def test_the_threat_model_names_every_program_and_what_stops_it():
    text = (REPOSITORY / "THREAT_MODEL.md").read_text(encoding="utf-8")
    missing = [case.name for case in hostile.CASES if f"| {case.name} | {case.stops} |" not in text]
    assert missing == []
    files = {path.name for path in hostile.PROGRAMS.iterdir() if path.suffix in {".py", ".sh"}}
    assert files == {case.file for case in hostile.CASES} | {"tools.py"}
    assert len({case.name for case in hostile.CASES}) == len(hostile.CASES) > 40
