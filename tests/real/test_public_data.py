"""Real input: what public data sets and environments get, which an owner can check by hand.

``QH_TEST_DATA`` names a folder with ``human-eval/HumanEval.jsonl.gz``; the rest comes from the
configured package index.
"""

import os
import sys
from pathlib import Path

import pytest

from qualityhub.engine.inspect import InspectOptions, inspect_source
from qualityhub.engine.policy import AdmissionPolicy
from qualityhub.engine.rules.confirm import FEWEST, SHARE

CONTROL = ("CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1", "Acrobot-v1")
TOY = ("FrozenLake-v1", "FrozenLake8x8-v1", "Blackjack-v1", "CliffWalking-v1", "Taxi-v4")
SOUND = (
    "basic_arithmetic",
    "decimal_arithmetic",
    "family_relationships",
    "figlet_font",
    "gcd",
    "knights_knaves",
    "leg_counting",
    "letter_counting",
    "mini_sudoku",
    "number_sorting",
    "simple_equations",
    "sokoban",
    "spell_backward",
    "word_sorting",
)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


def inspect(source, home, effort="standard"):
    report = inspect_source(source, InspectOptions(AdmissionPolicy(effort=effort), home))
    reasons = {row.reason for row in report.not_measured}
    if report.verdict == "pending" and any("index" in reason for reason in reasons):
        pytest.skip(f"no package index here: {reasons}")
    return report


def human_eval():
    path = Path(os.environ.get("QH_TEST_DATA", "")) / "human-eval" / "HumanEval.jsonl.gz"
    if not os.environ.get("QH_TEST_DATA") or not path.is_file():
        pytest.skip("QH_TEST_DATA names no folder with human-eval/HumanEval.jsonl.gz")
    return str(path)


def test_human_eval_is_sound_and_the_second_look_runs_nothing(home):
    first = inspect(human_eval(), home, "quick")
    assert (first.verdict, first.findings) == ("admitted", ())
    assert first.environment["tasks"] == 164
    # Where fork servers work, a few of the tasks that passed run again cold.
    ran = first.trials["run"]
    assert ran in {164, 164 + FEWEST + 164 // SHARE}
    again = inspect(human_eval(), home, "quick")
    assert again.trials == {**again.trials, "run": 0, "cached": ran}
    assert [task.verdict for task in again.tasks] == [task.verdict for task in first.tasks]


@pytest.mark.long
def test_human_eval_is_sound_under_repeats_and_hash_seeds(home):
    report = inspect(human_eval(), home)
    assert (report.verdict, report.findings) == ("admitted", ())


@pytest.mark.network
@pytest.mark.parametrize("name", ["CartPole-v1", "FrozenLake-v1"])
def test_gymnasium_environments_are_sound(name, home):
    report = inspect(f"gymnasium:{name}", home)
    assert (report.verdict, report.findings) == ("admitted", ())
    assert any(line.startswith("gymnasium==") for line in report.environment["lock"])


@pytest.mark.network
@pytest.mark.long
@pytest.mark.parametrize("name", sorted({*CONTROL, *TOY} - {"CartPole-v1", "FrozenLake-v1"}))
def test_more_gymnasium_environments_are_sound(name, home):
    report = inspect(f"gymnasium:{name}", home)
    assert (report.verdict, report.findings) == ("admitted", ())


@pytest.mark.network
def test_a_scorer_that_raises_on_prose_is_found_in_a_public_data_set(home):
    """``prime_factorization`` passes every factor to ``int`` without a guard."""
    report = inspect("reasoning-gym:prime_factorization?size=3", home)
    if report.findings == ():
        pytest.skip(f"fixed upstream: {report.environment['lock']}")
    assert {finding.code for finding in report.findings} == {"VER004"}
    assert {task.verdict for task in report.tasks} == {"quarantined"}
    seen = report.findings[0].evidence["seen"]["malformed:words"]["detail"]
    assert "ValueError" in seen


@pytest.mark.network
@pytest.mark.long
@pytest.mark.parametrize("name", SOUND)
def test_reasoning_gym_data_sets_without_a_defect_show_none(name, home):
    report = inspect(f"reasoning-gym:{name}", home)
    assert (report.verdict, report.findings) == ("admitted", ())


def test_this_process_never_imported_what_it_inspected():
    assert not {"gymnasium", "reasoning_gym"} & set(sys.modules)
