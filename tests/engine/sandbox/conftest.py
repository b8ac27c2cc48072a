from __future__ import annotations

import pytest

from qualityhub.engine.sandbox.bwrap import BwrapSandbox


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
