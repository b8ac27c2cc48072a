"""The hostile programs in containers: an engine holds what the provider promises, and says the rest."""

from __future__ import annotations

import importlib.util
import os
import secrets
import sys
from pathlib import Path

import pytest

from qualityhub.engine.sandbox.container import ContainerSandbox
from qualityhub.engine.sandbox.port import Command, Mount

SANDBOX = Path(__file__).resolve().parents[1] / "engine/sandbox"
DIFFERS = {
    "memory bomb of many small processes": "engines tell only of the first process",
    "memory through tmpfs": "the disk limit is sampled",
    "disk fill with one file": "the disk limit is sampled, and a limit per file",
    "disk fill with many files": "the number of files is sampled",
    "sparse file of a terabyte": "a limit per file refuses it",
    "links, pipes and devices where files are collected": "an image's own files can be hard-linked",
    "ptrace and memory of its parents": "the first process has the deleted start script open",
    "forged reports": "the same; it reports to nobody",
    "signals to everybody": "the command is the first process itself",
    "doors into the kernel": "engines may kill what makes calls of another architecture",
    "writing to what is ours": "an image's /usr is the container's own copy",
    "folders deeper than a path": "the number of files is sampled",
    "what the kernel counts per user": "the engine's bounds hold",
}
"""Why the end is another than in our own worlds; it is still a plain one."""


def _hostile():
    if "hostile" not in sys.modules:
        spec = importlib.util.spec_from_file_location("hostile", SANDBOX / "hostile.py")
        sys.modules["hostile"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules["hostile"]


@pytest.fixture(scope="module")
def container(tmp_path_factory):
    sandbox = ContainerSandbox(tmp_path_factory.mktemp("home"))
    seen = sandbox.capability()
    if not seen.usable:
        pytest.skip(f"container: {seen.reason}")
    yield sandbox
    sandbox.close()


@pytest.mark.long
@pytest.mark.container
@pytest.mark.parametrize("case", _hostile().CASES, ids=lambda case: case.name)
def test_a_container_holds_it(case, container, tmp_path):
    for place in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        place.chmod(0o755)
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours/program.py").write_text("ours")
    ours = tuple(Mount(target, tmp_path / "ours") for target in ("/qh/programs", "/qh/layer"))
    with _hostile().bait(tmp_path, secrets.token_hex(12), os.getpid()) as laid:
        python = str(container.interpreter().path)
        seen = container.run(_hostile().command(case, python, laid, ours))
    if case.name not in DIFFERS:
        assert _hostile().problems(case, seen, hard=True) == []
    assert len(seen.stdout) <= case.limits.output_bytes
    assert (tmp_path / "ours/program.py").read_text() == "ours"
    assert container.run(Command(argv=("/bin/echo", "next"))).stdout == b"next\n"
