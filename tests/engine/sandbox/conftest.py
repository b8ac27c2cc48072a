from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from qualityhub.engine.sandbox.bwrap import BwrapSandbox
from qualityhub.engine.sandbox.container import ContainerSandbox


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def bwrap(home):
    sandbox = BwrapSandbox(home)
    seen = sandbox.capability()
    if not seen.usable:
        pytest.skip(f"bubblewrap: {seen.reason}")
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="session")
def container(home):
    sandbox = ContainerSandbox(home)
    seen = sandbox.capability()
    if not seen.usable:
        pytest.skip(f"container: {seen.reason}")
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="session")
def index():
    """The helper that fills a folder with a package index."""
    spec = importlib.util.spec_from_file_location("index", Path(__file__).with_name("index.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """An empty package index, which is the only one configured."""
    folder = tmp_path / "simple"
    folder.mkdir()
    for place in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        place.chmod(0o755)
    for name in (
        "UV_INDEX",
        "UV_EXTRA_INDEX_URL",
        "PIP_EXTRA_INDEX_URL",
        "UV_INDEX_URL",
        "PIP_INDEX_URL",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"file://{folder}")
    return folder
