from __future__ import annotations

import pytest

from qualityhub.engine.errors import SandboxUnavailableError
from qualityhub.engine.sandbox import select
from qualityhub.engine.sandbox.conformance import kit
from qualityhub.engine.sandbox.port import Capability


def check_holds(_kit):
    """Something holds."""
    return ""


def check_is_soft(_kit):
    """Something is sampled."""
    raise kit.NotEnforced("now and then")


def check_leaks(_kit):
    """Something leaks."""
    return "it said \x1b[31mred"


class Provider:
    name = "bwrap"
    closed = False

    def capability(self):
        return Capability("bwrap", usable=True)

    def close(self):
        self.closed = True


@pytest.fixture
def doctor(call, monkeypatch):
    provider = Provider()

    def ask(*arguments, checks=(check_holds, check_is_soft)):
        asked = {}
        monkeypatch.setattr(kit, "CHECKS", {one.__name__: one for one in checks})
        monkeypatch.setattr(
            select, "select_sandbox", lambda kind, home: asked.update(kind=kind) or provider
        )
        seen = call("doctor", "--conformance", *arguments)
        assert provider.closed
        return seen, asked["kind"]

    return ask


def test_every_check_is_a_line_and_soft_is_no_failure(doctor):
    seen, kind = doctor("container")
    assert (seen.code, kind) == (0, "container")
    assert seen.out.splitlines() == [
        "what the bwrap provider holds here:",
        "pass  Something holds.  (check_holds)",
        "soft  Something is sampled.  (check_is_soft)",
        "      -> now and then",
        "1 pass, 1 soft, 0 fail",
    ]


def test_what_does_not_hold_fails_and_cannot_write_to_the_terminal(doctor):
    seen, _ = doctor("auto", checks=(check_leaks,))
    assert seen.code == 1
    assert "fail  Something leaks." in seen.out
    assert "\x1b" not in seen.out


def test_the_same_as_one_document(doctor):
    seen, _ = doctor("bwrap", "--format", "json", checks=(check_holds, check_leaks))
    said = seen.json
    assert (said["ok"], said["provider"], seen.code) == (False, "bwrap", 1)
    assert [check["outcome"] for check in said["checks"]] == ["pass", "fail"]


def test_a_provider_that_cannot_run_here_says_what_to_do(call, monkeypatch):
    def none(_kind, _home):
        raise SandboxUnavailableError("sandbox.unavailable", "Nothing can run.", "start one")

    monkeypatch.setattr(select, "select_sandbox", none)
    seen = call("doctor", "--conformance", "auto")
    assert seen.code == 4
    assert "Nothing can run." in seen.err
    assert "start one" in seen.err
