"""A small soak: nothing grows, and what does is found."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).resolve().parents[3] / "benchmarks/soak.py"


@pytest.fixture(scope="module")
def soak():
    spec = importlib.util.spec_from_file_location("soak", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    sys.modules["soak"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///none.sock")
    for place in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        place.chmod(0o755)
    return tmp_path


def test_three_hundred_mixed_trials_leave_nothing_behind(soak, folder):
    run = soak.soak(folder, 300, 50, jobs=2, seed=3)
    assert run.trials == sum(run.ended.values()) == 300
    assert run.served > 200
    assert len({name.split(":")[0] for name in run.ended}) >= 8
    assert run.problems() == []


def test_what_grows_is_found(soak, folder):
    files, servers, blocks = [], [], []
    one = soak.Soak(folder, jobs=2, seed=5)
    try:
        for number in range(5):
            one.stretch(8)
            files.append(os.open(os.devnull, os.O_RDONLY))
            servers.append(one.sandbox.serve(serving(one)))
            blocks.append(bytearray(b"x") * (8 * soak.MIB))
            (one.home / f"left-{number}").touch()
        found = " ".join(one.run.problems())
    finally:
        for server in servers:
            server.close()
        for file in files:
            os.close(file)
        one.close()
    for metric in ("open files", "processes", "groups", "memory", "data files"):
        assert f"{metric} would grow" in found


def serving(one):
    from qualityhub.engine.sandbox.interpreters import default_interpreter
    from qualityhub.engine.sandbox.port import Command

    return Command(argv=(str(default_interpreter().path), "-I", "-c", "pass"))


def test_a_trial_that_came_to_something_else_is_a_problem(soak, folder, monkeypatch):
    monkeypatch.setitem(soak.FUNCTIONS, "quick", (10_000, "    return x\n", "reward 1.0"))
    run = soak.soak(folder, 16, 8, jobs=2)
    assert any("quick came to reward 0.0" in problem for problem in run.problems())


def test_a_line_is_fitted_after_the_warm_up(soak):
    at = [1000 * n for n in range(1, 21)]
    assert soak.growth(at, [50 + 10 * (n < 3) for n in range(20)]) == pytest.approx(0)
    assert soak.growth(at, [n / 2 for n in range(20)]) == pytest.approx(10)
    assert soak.growth(at, [9 - n / 2 for n in range(20)]) == pytest.approx(-10)
