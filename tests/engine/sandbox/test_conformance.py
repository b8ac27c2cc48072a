from __future__ import annotations

import pytest

from qualityhub.engine.sandbox.conformance import CHECKS, Kit
from qualityhub.engine.sandbox.interpreters import default_interpreter


@pytest.fixture
def scratch(tmp_path):
    # Isolation must hold although the host's permissions would let anyone read.
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("name", CHECKS)
def test_bubblewrap_holds(name, bwrap, scratch):
    kit = Kit(bwrap, str(default_interpreter().path), scratch)
    assert CHECKS[name](kit) == ""


@pytest.mark.container
@pytest.mark.parametrize("name", CHECKS)
def test_a_container_holds(name, container, scratch):
    kit = Kit(container, str(container.interpreter().path), scratch)
    assert CHECKS[name](kit) == ""
