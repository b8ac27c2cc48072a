from __future__ import annotations

import os

import pytest

from qualityhub.engine.sandbox.conformance import CHECKS, examine, kit_for
from qualityhub.engine.sandbox.conformance.kit import Kit, NotEnforced
from qualityhub.engine.sandbox.port import Capability


@pytest.fixture
def scratch(tmp_path):
    # Isolation must hold although the host's permissions would let anyone read.
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    return tmp_path


def may_be_soft(sandbox):
    """Return the checks that a provider may leave soft, by what it says of itself."""
    seen = sandbox.capability()
    soft = set()
    if not seen.ownership:
        soft |= {"file_ownership_is_real", "set_id_programs_gain_nothing"}
    for limit, name in (("disk_bytes", "disk_limit"), ("files", "file_count_limit")):
        if seen.limits[limit] != "hard":
            soft.add(name)
    if seen.limits.get("read_only") == "none":
        soft.add("read_only_mounts_stay_so")
    if seen.limits["system_calls"] != "hard":
        soft.add("kernel_doors_are_shut")
    if len(os.sched_getaffinity(0)) == 1:
        soft.add("cpu_count")
    return soft


def hold(sandbox, name, scratch):
    (held,) = examine(kit_for(sandbox, scratch), (name,))
    assert held.title
    if held.outcome == "soft":
        assert held.reason
        assert name in may_be_soft(sandbox)
    else:
        assert held.outcome == "pass", held.reason


@pytest.mark.parametrize("name", CHECKS)
def test_bubblewrap_holds(name, bwrap, scratch):
    hold(bwrap, name, scratch)


@pytest.mark.container
@pytest.mark.parametrize("name", CHECKS)
def test_a_container_holds(name, container, scratch):
    hold(container, name, scratch)


class Leaky:
    """Says that it holds everything, and does as it is told."""

    name = "leaky"

    def __init__(self, answer):
        self.answer = answer

    def capability(self):
        return Capability("leaky", usable=True)

    def run(self, command):
        raise self.answer


@pytest.mark.parametrize(
    ("answer", "outcome", "reason"),
    [
        (AssertionError("it leaks"), "fail", "it leaks"),
        (KeyError("x"), "fail", "'x'"),
        (NotEnforced("sampled"), "soft", "sampled"),
    ],
)
def test_what_does_not_hold_is_told_from_what_is_not_enforced(tmp_path, answer, outcome, reason):
    told = []
    kit = Kit(Leaky(answer), "/python", tmp_path)
    (seen,) = examine(kit, ("no_terminal",), told.append)
    assert (seen.name, seen.outcome, seen.reason) == ("no_terminal", outcome, reason)
    assert told == [seen]
