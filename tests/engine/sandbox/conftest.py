from __future__ import annotations

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
