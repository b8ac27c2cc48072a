from __future__ import annotations

import pytest

from qualityhub.engine.errors import SandboxUnavailableError
from qualityhub.engine.sandbox import engine, interpreters, select
from qualityhub.engine.sandbox.hostfacts import HostFacts
from qualityhub.engine.sandbox.interpreters import (
    all_interpreters,
    default_interpreter,
    find_interpreter,
    valid_specifier,
)
from qualityhub.engine.sandbox.port import Capability


class Provider:
    def __init__(self, name, usable):
        self.name = name
        self.usable = usable
        self.closed = False

    def __call__(self, home):
        return self

    def capability(self):
        return Capability(self.name, usable=self.usable, reason="it is broken", remedy="mend it")

    def close(self):
        self.closed = True


@pytest.fixture
def providers(monkeypatch):
    def place(bwrap, container):
        made = Provider("bwrap", bwrap), Provider("container", container)
        monkeypatch.setattr(select, "BwrapSandbox", made[0])
        monkeypatch.setattr(select, "ContainerSandbox", made[1])
        monkeypatch.setattr(select.sys, "platform", "linux")
        monkeypatch.setattr(select, "look_at_host", lambda: HostFacts(0, "root"))
        return made

    return place


def test_auto_prefers_bubblewrap(providers, tmp_path):
    bwrap, _ = providers(bwrap=True, container=True)
    assert select.select_sandbox("auto", tmp_path) is bwrap


def test_auto_falls_back_to_containers_and_closes_the_other(providers, tmp_path):
    bwrap, container = providers(bwrap=False, container=True)
    assert select.select_sandbox("auto", tmp_path) is container
    assert bwrap.closed


def test_other_systems_run_by_container(providers, tmp_path, monkeypatch):
    _, container = providers(bwrap=True, container=True)
    monkeypatch.setattr(select.sys, "platform", "darwin")
    assert select.select_sandbox("auto", tmp_path) is container


@pytest.mark.parametrize("kind", ["auto", "bwrap", "container"])
def test_none_is_one_line_with_a_remedy(providers, tmp_path, kind):
    providers(bwrap=False, container=False)
    with pytest.raises(SandboxUnavailableError) as caught:
        select.select_sandbox(kind, tmp_path)
    assert caught.value.code == "sandbox.unavailable"
    assert "it is broken" in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint == "mend it"


def test_capabilities_name_every_provider(providers, tmp_path):
    made = providers(bwrap=True, container=False)
    seen = select.capabilities(tmp_path)
    assert [(item.provider, item.usable) for item in seen] == [
        ("bwrap", True),
        ("container", False),
    ]
    assert all(provider.closed for provider in made)


def test_an_engine_that_does_not_answer_is_no_engine(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    assert engine.addresses() == [f"unix://{tmp_path}/none.sock"]
    assert engine.engine_address() == ""
    monkeypatch.setenv("DOCKER_HOST", "nonsense")
    assert engine.engine_address() == ""


def test_the_default_interpreter_is_outside_virtual_environments():
    seen = default_interpreter()
    assert seen.path.is_file()
    assert not (seen.prefix / "pyvenv.cfg").exists()
    assert seen.path.is_relative_to(seen.prefix)


def test_a_declared_version_finds_its_interpreter():
    default = default_interpreter()
    assert find_interpreter(None) == default
    assert find_interpreter(">=3.8") == default
    assert find_interpreter(f"=={default.version}") == default
    assert find_interpreter(default.version.rsplit(".", 1)[0]) == default
    assert find_interpreter(">=4") is None
    assert find_interpreter("nonsense") is None
    assert not valid_specifier("nonsense")
    assert default in all_interpreters()


def test_folders_on_the_path_that_are_closed_to_us_are_passed_over(monkeypatch, tmp_path):
    def closed(self):
        raise PermissionError(13, "closed")

    monkeypatch.setattr(interpreters.Path, "iterdir", closed)
    assert interpreters._listed(tmp_path) == []
