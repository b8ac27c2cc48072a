"""Cold confirmation: no verdict rests on a fork server alone."""

import random
from dataclasses import replace

import pytest

from qualityhub.engine.policy import AdmissionPolicy
from qualityhub.engine.rules.advance import Inspection, advance
from qualityhub.engine.rules.confirm import REPEATS
from qualityhub.engine.trials.model import Ask, Observation
from qualityhub.engine.trials.probes import NOP, ORACLE
from tests.engine.rules.test_advance import READY, environment


def inspect(answer, ids=("a", "b"), **policy):
    """Run to the report; ``answer(ask)`` gives the reward, served unless the ask is cold."""
    subject = environment(ids=ids)
    inspection = Inspection(subject, READY, AdmissionPolicy(**policy), today="2026-06-01")
    seen = {}
    for _ in range(16):
        step = advance(inspection, seen)
        if step.report is not None:
            return step.report, seen
        assert not set(step.asks) & set(seen)
        for ask in step.asks:
            reward = answer(ask)
            seen[ask] = (
                reward
                if isinstance(reward, Observation)
                else Observation("reward", reward, trial=f"t-{ask}", served=not ask.cold)
            )
    raise AssertionError("no end in sight")


def sound(ask):
    return 1.0 if ask.probe == ORACLE else 0.0


def test_every_ask_of_a_finding_runs_again_cold():
    def answer(ask):
        return 0.0 if ask.task == "b" else sound(ask)

    report, seen = inspect(answer)

    assert [finding.code for finding in report.findings] == ["VER001"]
    assert Ask("b", ORACLE, cold=True) in seen
    assert report.findings[0].evidence["seen"]["trial"] == f"t-{Ask('b', ORACLE, cold=True)}"


def test_what_was_never_served_is_not_run_again():
    report, seen = inspect(lambda ask: Observation("reward", 0.0, trial="t"))

    assert report.verdict == "rejected"
    assert not any(ask.cold for ask in seen)


def test_a_few_tasks_that_passed_run_again_cold_and_no_more():
    ids = tuple(f"t{number}" for number in range(250))
    report, seen = inspect(sound, ids=ids)

    assert report.verdict == "admitted"
    assert sum(ask.cold for ask in seen) == 3 + 2
    assert inspect(sound, ids=ids)[1].keys() == seen.keys()


def test_a_server_that_contradicts_every_cold_run_counts_for_nothing():
    def answer(ask):
        return 0.0 if ask.task == "b" and ask.probe == ORACLE and not ask.cold else sound(ask)

    report, seen = inspect(answer)

    assert report.verdict == "admitted"
    assert not report.findings
    assert all(Ask("b", ORACLE, repeat=n, cold=True) in seen for n in range(REPEATS))
    assert report.host["fork_server"].startswith("not used")
    # Nothing of what it showed is left in the verdict: every ask of the other task ran cold too.
    served = {ask for ask in seen if not ask.cold and ask.task == "a"}
    assert {replace(ask, cold=True) for ask in served} <= set(seen)


def test_a_server_that_hides_a_failure_is_caught_by_the_sample():
    def answer(ask):
        return 1.0 if ask.probe == ORACLE and not ask.cold else 0.0

    report, _ = inspect(answer, ids=("only",))

    assert [finding.code for finding in report.findings if finding.severity == "error"] == [
        "VER001"
    ]
    assert report.verdict == "rejected"
    assert "fork_server" in report.host


@pytest.mark.parametrize("seed", range(5))
def test_a_random_reward_stays_the_environments_fault(seed):
    chance = random.Random(seed)

    def answer(ask):
        return chance.choice((0.0, 1.0)) if ask.probe == ORACLE else 0.0

    report, _ = inspect(answer, ids=("only",))

    assert report.verdict == "rejected"
    assert not any(rule.status == "error" for rule in report.rules)


def test_a_reward_that_fails_in_one_run_of_ten_is_rarely_held_against_the_server():
    verdicts, blamed = [], 0
    for seed in range(40):
        chance = random.Random(seed)

        def answer(ask, chance=chance):
            return float(chance.random() < 0.9) if ask.probe == ORACLE else 0.0

        report = inspect(answer, ids=("only",))[0]
        verdicts.append(report.verdict)
        blamed += "fork_server" in report.host

    assert set(verdicts) <= {"admitted", "rejected"}
    assert blamed <= 2


def test_a_time_out_that_a_cold_run_does_not_repeat_contradicts_nothing():
    def answer(ask):
        if ask.task == "b" and ask.probe == ORACLE and not ask.cold:
            return Observation("timeout", trial="slow", served=True)
        return sound(ask)

    report, _ = inspect(answer)

    assert report.verdict == "admitted"


def test_a_budget_that_ends_before_the_confirmation_keeps_the_finding():
    def answer(ask):
        if ask.cold:
            return Observation("unmeasured", detail="the budget was spent")
        return 1.0

    report, seen = inspect(answer, ids=("only",))

    assert [finding.code for finding in report.findings] == ["VER002"]
    assert Ask("only", NOP, cold=True) in seen
