from __future__ import annotations

import json
from dataclasses import replace

import pytest

from qualityhub.engine.environments.model import Dependencies, Environment, Task
from qualityhub.engine.errors import InvalidInputError
from qualityhub.engine.sandbox.interpreters import default_interpreter
from qualityhub.engine.sandbox.port import Mount
from qualityhub.engine.trials import image_worlds
from qualityhub.engine.trials.model import World
from qualityhub.engine.trials.worlds import (
    locate_world,
    prepare_world,
    world_command,
    world_from_json,
    world_python,
    world_to_json,
)


@pytest.fixture(autouse=True)
def no_index(monkeypatch, tmp_path):
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"file://{tmp_path}/none")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")


def environment(**changes):
    fields = {"name": "x", "adapter": "test", "family": "function", "digest": "d", "tasks": ()}
    return Environment(**{**fields, **changes})


@pytest.fixture
def task_of(tmp_path):
    root = tmp_path / "task"
    (root / "environment").mkdir(parents=True)

    def make(*lines, **data):
        (root / "environment/Dockerfile").write_text("\n".join(lines))
        (root / "environment/run.sh").write_text("#!/bin/sh\necho ran in $(pwd) as $WHO\n")
        (root / "environment/run.sh").chmod(0o755)
        facts = {
            "path": ".",
            "context": "environment",
            "dockerfile": "environment/Dockerfile",
            "docker_image": "",
            "compose": False,
            **data,
        }
        task = Task("t", {}, "d", facts)
        return environment(family="task", tasks=(task,), root=root), task

    return make


def prepare(bwrap, home, made):
    one, task = made
    return prepare_world(one, bwrap, home, task=task)


def test_a_function_world_hides_what_the_host_installed(bwrap, home):
    world = prepare_world(environment(), bwrap, home)
    assert (world.status, world.provisional) == ("ready", False)
    assert world.python == default_interpreter().version
    program = (
        "import sys, os; print(sys.prefix); print(os.environ['TZ'], os.environ['PYTHONHASHSEED'])"
    )
    seen = bwrap.run(world_command(world, (world_python(world), "-c", program)))
    assert seen.stdout.decode().split() == ["/qh/layer", "UTC", "0"], seen.stderr


def test_the_same_question_has_the_same_digest_without_host_paths(bwrap, home, tmp_path):
    first = prepare_world(environment(), bwrap, home)
    second = prepare_world(environment(), bwrap, tmp_path / "another home")
    assert first.digest == second.digest
    assert first.paths["layer"] != second.paths["layer"]


@pytest.mark.parametrize(
    ("spec", "status", "word"),
    [(">=4", "unavailable", "no Python >=4"), ("three", "failed", "cannot be understood")],
)
def test_a_python_that_is_not_here_or_not_a_version(bwrap, home, spec, status, word):
    world = prepare_world(environment(dependencies=Dependencies(python=spec)), bwrap, home)
    assert world.status == status
    assert word in world.reason


def test_requirements_that_do_not_parse_are_the_environments_fault(bwrap, home):
    wanted = Dependencies(requirements=("x @ https://example.org/x.whl",))
    world = prepare_world(environment(dependencies=wanted), bwrap, home)
    assert world.status == "failed"
    assert "names a place" in world.reason


def test_a_simple_image_is_rehearsed_provisionally(bwrap, home, task_of):
    world = prepare(
        bwrap,
        home,
        task_of(
            "FROM python:3", "ENV WHO=me", "WORKDIR /app", "COPY run.sh ./", "RUN mkdir -p /data"
        ),
    )
    assert (world.status, world.provisional, world.workdir) == ("ready", True, "/app")
    assert "rehearsed" in world.provisional_reason
    seen = bwrap.run(
        world_command(
            world,
            ("sh", "-c", "./run.sh; echo y >/data/x; echo z >run.sh; ls; python -c 'print(1)'"),
        )
    )
    assert seen.stdout == b"ran in /app as me\nrun.sh\n1\n", seen.stderr
    again = bwrap.run(world_command(world, ("./run.sh",)))
    assert again.stdout == b"ran in /app as me\n"


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("RUN apt-get install -y git", "apt-get install -y git"),
        ("USER agent", "USER agent"),
        ("FROM debian", "second stage"),
    ],
)
def test_what_cannot_be_rehearsed_is_unavailable_by_name(bwrap, home, task_of, line, word):
    world = prepare(bwrap, home, task_of("FROM python:3", line))
    assert world.status == "unavailable"
    assert word in world.reason
    assert "container engine" in world.would_need


def test_a_foreign_base_image_is_unavailable(bwrap, home, task_of):
    world = prepare(bwrap, home, task_of("FROM ghcr.io/some/thing:1"))
    assert world.status == "unavailable"
    assert "ghcr.io/some/thing:1" in world.reason


@pytest.mark.parametrize("source", ["../outside", "missing.txt"])
def test_a_build_that_no_engine_could_make_is_the_environments_fault(bwrap, home, task_of, source):
    world = prepare(bwrap, home, task_of("FROM python:3", f"COPY {source} /x"))
    assert world.status == "failed"
    assert source in world.reason


@pytest.mark.parametrize(
    ("data", "word"),
    [({"compose": True}, "compose"), ({"gpus": 1}, "GPU"), ({"os": "windows"}, "windows")],
)
def test_what_this_host_never_can_is_unavailable(bwrap, home, task_of, data, word):
    world = prepare(bwrap, home, task_of("FROM python:3", **data))
    assert world.status == "unavailable"
    assert word in world.reason


def test_a_context_outside_the_environment_is_refused(bwrap, home, task_of):
    with pytest.raises(InvalidInputError):
        prepare(bwrap, home, task_of("FROM python:3", context="../.."))


def test_a_world_survives_json_and_is_found_again(bwrap, home, task_of):
    world = prepare(bwrap, home, task_of("FROM python:3", "WORKDIR /app", "COPY run.sh ."))
    stored = json.loads(json.dumps(world_to_json(world)))
    assert "paths" not in stored
    assert str(home) not in json.dumps(stored)
    assert locate_world(stored, home) == world
    assert replace(world, paths={}) == world_from_json(stored)


def test_a_world_whose_parts_are_gone_is_not_found(bwrap, home, tmp_path):
    stored = world_to_json(prepare_world(environment(), bwrap, home))
    assert locate_world(stored, tmp_path / "empty") is None
    assert locate_world({"status": "failed", "reason": "no"}, tmp_path).status == "failed"
    with pytest.raises(InvalidInputError):
        world_from_json({"nonsense": 1})


def test_commands_need_a_ready_world():
    with pytest.raises(InvalidInputError, match="unavailable"):
        world_command(World(status="unavailable", reason="no engine"), ("true",))


def test_later_mounts_and_variables_win():
    world = World(
        status="ready",
        provider="bwrap",
        env={"A": "image", "PATH": "/x"},
        base="qh1:aa",
        paths={"base": "/tree"},
        user="agent",
        become=("setpriv", "--reuid=1000", "--"),
        workdir="/home/agent",
    )
    command = world_command(
        world, ("run",), extra_mounts=(Mount("/x", None, "scratch"),), env={"A": "ours"}
    )
    assert command.env["A"] == "ours"
    assert command.env["PATH"] == "/x"
    assert command.argv[0] == "setpriv"
    assert command.argv[-1] == "run"
    assert (command.cwd, str(command.base)) == ("/home/agent", "/tree")
    assert command.mounts[-1].target == "/x"


def test_the_python_of_an_image_is_found_inside_it(tmp_path):
    (tmp_path / "usr/local/bin").mkdir(parents=True)
    (tmp_path / "usr/local/bin/python3.12").write_text("")
    (tmp_path / "usr/local/bin/python3.12").chmod(0o755)
    (tmp_path / "usr/local/bin/python3").symlink_to("python3.12")
    assert image_worlds._python_in(tmp_path, {}) == "/usr/local/bin/python3"
    assert image_worlds._python_in(tmp_path, {"PATH": "/nowhere"}) == ""
