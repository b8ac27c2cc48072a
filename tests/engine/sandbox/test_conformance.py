from __future__ import annotations

import pytest

from qualityhub.engine.sandbox.conformance import CHECKS, Kit
from qualityhub.engine.sandbox.interpreters import default_interpreter


@pytest.mark.parametrize("name", CHECKS)
def test_bubblewrap_holds(name, bwrap, tmp_path):
    kit = Kit(bwrap, str(default_interpreter().path), tmp_path)
    assert CHECKS[name](kit) == ""
