"""A pytest plugin: runs what was collected in the opposite order, and leaves a mark that it did."""

import contextlib

import pytest

MARK = "/qh/out/reversed"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Reverse the tests."""
    items.reverse()
    with contextlib.suppress(OSError), open(MARK, "a", encoding="ascii") as file:
        file.write("%d\n" % len(items))
