from __future__ import annotations

import pytest

from qualityhub.engine.environments.imports import find_imports, imported_modules
from qualityhub.engine.errors import UnreadablePackageError

SOURCE = """
from __future__ import annotations
import json, os.path
import numpy as np
import sympy.core
from scipy.stats import norm
from . import sibling
from .other import name
import helpers
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas

try:
    import orjson
except ImportError:
    import simplejson as orjson

try:
    import needed
finally:
    pass

with contextlib.suppress(ImportError):
    import optional

def later():
    import lazy_one

class Body:
    import in_class
"""


def test_what_the_source_needs_is_third_party_and_unguarded():
    needed = imported_modules(SOURCE, local={"helpers"})
    assert needed == {"numpy", "sympy", "scipy", "needed", "lazy_one", "in_class"}


def test_every_import_says_how_it_is_made():
    found = {item.name: item for item in find_imports(SOURCE)}
    assert found["json"].standard
    assert found["pandas"].guarded
    assert found["orjson"].guarded
    assert found["simplejson"].guarded
    assert found["optional"].guarded
    assert found["lazy_one"].lazy
    assert not found["numpy"].lazy
    assert found["numpy"].line == 4
    assert "sibling" not in found


@pytest.mark.parametrize(
    ("guard", "guarded"),
    [
        ("except ImportError: pass", True),
        ("except (ValueError, ModuleNotFoundError): pass", True),
        ("except builtins.ImportError: pass", True),
        ("except: pass", True),
        ("except ValueError: pass", False),
    ],
)
def test_only_what_catches_an_import_error_guards(guard, guarded):
    (item,) = find_imports(f"try:\n    import extra\n{guard}\n")
    assert item.guarded is guarded


def test_the_else_of_a_guard_is_not_covered_by_it():
    found = {
        i.name: i
        for i in find_imports("try:\n import a\nexcept ImportError: pass\nelse:\n import b\n")
    }
    assert (found["a"].guarded, found["b"].guarded) == (True, False)


@pytest.mark.parametrize("source", ["import (", "\0", "-" * 50_000 + "1"])
def test_source_that_does_not_parse_is_named(source):
    with pytest.raises(UnreadablePackageError) as caught:
        find_imports(source, place="solution.py")
    assert caught.value.code == "package.bad_python"
    assert "solution.py" in caught.value.message
