"""``advance`` as a pure function: a simulated world answers every ask."""

import dataclasses
import json
import random

import pytest

from qualityhub.engine.digest import digest_environment, digest_task
from qualityhub.engine.environments.model import Environment, Problem, RewardSpec, Task
from qualityhub.engine.policy import AdmissionPolicy
from qualityhub.engine.report import report_from_json
from qualityhub.engine.reports.junit import inspection_junit
from qualityhub.engine.reports.markdown import inspection_markdown
from qualityhub.engine.reports.sarif import inspection_sarif
from qualityhub.engine.rules.advance import Inspection, advance
from qualityhub.engine.rules.catalogue import CATALOGUE
from qualityhub.engine.rules.verdict import Waiver
from qualityhub.engine.trials.model import Ask, Observation, Variation, World
from qualityhub.engine.trials.probes import NOP, ORACLE

READY = {"": World("ready", digest="w", provider="test")}


def environment(family="function", ids=("a", "b"), **changes):
    tasks = tuple(
        Task(name, {"statement": name}, digest_task({"statement": name}), {"answer": "1"})
        for name in ids
    )
    base = Environment(
        name="e",
        adapter=family,
        family=family,
        digest=digest_environment("", {task.id: task.digest for task in tasks}),
        tasks=tasks,
        entry={"file": "scorer.py"},
    )
    return dataclasses.replace(base, **changes)


def sound(ask):
    if ask.probe == ORACLE:
        return Observation("reward", 1.0, trial=f"t-{ask}")
    return Observation("reward", 0.0, trial=f"t-{ask}")


def run(subject, answer=sound, policy=None, worlds=None, **options):
    seen = {}
    inspection = Inspection(
        subject, worlds or READY, policy or AdmissionPolicy(), today="2026-06-01", **options
    )
    for rounds in range(10):
        step = advance(inspection, seen)
        if step.report is not None:
            return step.report, seen, rounds
        assert len(set(step.asks)) == len(step.asks)
        assert not set(step.asks) & set(seen)
        seen.update({ask: answer(ask) for ask in step.asks})
    raise AssertionError("no end in sight")


def found(report):
    return {(finding.code, finding.task) for finding in report.findings}


def test_a_sound_environment_is_admitted_and_asked_in_few_rounds():
    report, _, rounds = run(environment())
    assert report.verdict == "admitted"
    assert report.findings == ()
    assert {task.verdict for task in report.tasks} == {"admitted"}
    assert rounds <= 3


def test_a_failing_reference_quarantines_its_task_alone():
    report, _, _ = run(
        environment(),
        lambda ask: Observation("reward", 0.0) if ask.task == "b" else sound(ask),
    )
    assert found(report) == {("VER001", "b")}
    assert report.verdict == "partial"
    assert [task.verdict for task in report.tasks] == ["admitted", "quarantined"]


def test_an_environment_whose_tasks_all_fail_is_rejected():
    report, _, _ = run(environment(), lambda ask: Observation("reward", 0.0))
    assert report.verdict == "rejected"


def test_a_reward_that_changes_between_repeats_is_not_blamed_on_the_hash_seed():
    report, seen, _ = run(
        environment(ids=("a",)),
        lambda ask: Observation("reward", 1.0 + ask.repeat) if ask.probe == ORACLE else sound(ask),
    )
    assert ("DET001", "a") in found(report)
    assert ("DET002", "a") not in found(report)
    assert not any(ask.variation.hash_seed for ask in seen)


def test_a_reward_that_changes_with_the_hash_seed_names_the_seed():
    def answer(ask):
        if ask.probe == ORACLE and ask.variation == Variation(hash_seed=2):
            return Observation("reward", 1.5)
        return sound(ask)

    report, _, _ = run(environment(ids=("a",)), answer)
    assert found(report) == {("DET002", "a")}
    assert report.findings[0].evidence["hash_seed"] == 2


@pytest.mark.parametrize("seed", range(30))
def test_a_random_reward_is_never_blamed_on_the_hash_seed(seed):
    draw = random.Random(seed)

    def answer(ask):
        if ask.probe == ORACLE:
            return Observation("reward", draw.choice((1.0, 1.25)))
        return sound(ask)

    report, seen, _ = run(environment(ids=("a",)), answer)
    runs = {seen[ask].reward for ask in seen if ask.probe == ORACLE}
    if ("DET002", "a") in found(report):
        # By chance every run of one hash seed agreed: then each side was seen at least four times.
        assert len([ask for ask in seen if ask.probe == ORACLE]) >= 8
    elif len(runs) > 1:
        assert ("DET001", "a") in found(report)


def test_a_random_reward_is_reported_as_such_nearly_always():
    wrong = 0
    for seed in range(200):
        draw = random.Random(seed)

        def answer(ask, draw=draw):
            if ask.probe == ORACLE:
                return Observation("reward", draw.choice((1.0, 1.25)))
            return sound(ask)

        report, _, _ = run(environment(ids=("a",)), answer)
        wrong += ("DET002", "a") in found(report)
    # Eight fair coins fall in the one way that misleads less than once in a hundred.
    assert wrong <= 4


def test_what_does_not_load_is_one_finding_of_the_whole_environment():
    broken = Observation(
        "crashed", facts={"stage": "load", "error": "ValueError", "message": "no such set"}
    )
    report, _, _ = run(environment("scorer"), lambda ask: broken)
    assert found(report) == {("VER001", None)}
    assert report.verdict == "rejected"
    assert report.findings[0].message == "e does not load; it raises ValueError: no such set."


def test_what_an_owners_own_module_says_while_it_loads_stays_in_the_evidence(tmp_path):
    broken = Observation(
        "crashed", facts={"stage": "load", "error": "ValueError", "message": "answer is 42"}
    )
    report, _, _ = run(environment("scorer", root=tmp_path), lambda ask: broken)
    assert "42" not in report.findings[0].message


def test_an_exceptions_text_stays_in_the_evidence():
    secret = Observation(
        "crashed",
        detail="AssertionError: expected 42",
        facts={"error": "AssertionError", "message": "expected 42"},
    )
    report, _, _ = run(environment("scorer", ids=("a",)), lambda ask: secret)
    assert report.findings
    assert not any("42" in finding.message for finding in report.findings)


@pytest.mark.parametrize("export", [inspection_sarif, inspection_junit, inspection_markdown])
def test_a_reward_that_quotes_the_answer_stays_out_of_what_leaves_the_hub(export):
    def quoting(ask):
        return Observation("reward", "{'ok': 1, 'expected': 'K3Y'}", "dict", trial=f"t-{ask}")

    report, _, _ = run(environment("scorer"), quoting)
    document = report.as_json()
    assert ("VER003", "a") in found(report)
    assert "K3Y" in json.dumps(document), "the owner sees it"
    keywords = {"catalogue": CATALOGUE} if export is inspection_sarif else {}
    written = export([document], **keywords)
    assert "of type dict" in written
    assert "K3Y" not in written


def test_one_time_out_is_load_and_two_are_a_finding():
    def once(ask):
        if ask == Ask("a", ORACLE):
            return Observation("timeout")
        return sound(ask)

    report, _, _ = run(environment(ids=("a",)), once)
    assert report.findings == ()
    report, _, _ = run(
        environment(ids=("a",)),
        lambda ask: Observation("timeout") if ask.probe == ORACLE else sound(ask),
    )
    assert found(report) == {("VER001", "a")}


def test_a_missing_module_is_reported_once_by_the_dependency_rule():
    crashed = Observation("crashed", facts={"missing_module": "sympy", "error": "ImportError"})
    report, _, _ = run(environment("scorer", ids=("a",)), lambda ask: crashed)
    assert found(report) == {("DEP002", "a")}


@pytest.mark.parametrize("code", ["VER001", "VER002", "VER004", "DET001", "DET002"])
def test_a_missing_module_never_reads_as_a_pass_of_another_rule(code):
    crashed = Observation("crashed", facts={"missing_module": "sympy", "error": "ImportError"})
    report, _, _ = run(environment("scorer", ids=("a",)), lambda ask: crashed, select=(code,))
    assert report.findings == ()
    assert [(rule.code, rule.status) for rule in report.rules] == [(code, "skip")]
    assert report.verdict == "pending"


def test_a_rule_that_saw_no_reward_claims_nothing_about_rewards():
    crashed = Observation("crashed", facts={"error": "ValueError"})
    report, _, _ = run(environment("scorer", ids=("a",)), lambda ask: crashed)
    status = {rule.code: rule.status for rule in report.rules}
    assert status["VER001"] == "fail"
    assert {status[code] for code in ("VER003", "VER004", "DET001", "DET002")} == {"skip"}


def test_a_container_may_lack_the_module_that_its_task_asks_for():
    def answer(ask):
        facts = {"missing_module": "mymod"} if ask.probe == NOP else {}
        return dataclasses.replace(sound(ask), facts=facts)

    report, _, _ = run(environment("task", ids=("a",)), answer)
    assert report.findings == ()
    assert report.verdict == "admitted"


def test_a_failed_import_that_the_verifier_survives_is_no_finding_and_one_that_ends_it_is():
    def answer(reward):
        return lambda ask: Observation(
            "reward", reward if ask.probe == ORACLE else 0.0, facts={"missing_module": "numpy"}
        )

    report, _, _ = run(environment("task", ids=("a",)), answer(1.0))
    assert report.verdict == "admitted"
    report, _, _ = run(environment("task", ids=("a",)), answer(0.0))
    assert found(report) == {("DEP002", "a")}


def test_an_episode_that_raises_only_sometimes_is_not_replayable():
    def answer(ask):
        if ask.repeat == 1:
            return Observation("crashed", facts={"error": "RuntimeError"})
        return Observation("reward", 1.0, facts={"trace": ["a", "b"]})

    report, _, _ = run(environment("episode", ids=("a",)), answer)
    assert found(report) == {("DET003", "a")}
    [finding] = report.findings
    assert finding.message.endswith("seen: reward 1, then RuntimeError.")


def test_our_own_failure_is_an_error_and_never_a_finding():
    report, _, _ = run(
        environment(ids=("a",)),
        lambda ask: Observation("machinery", detail="broken") if ask.probe == NOP else sound(ask),
    )
    assert report.verdict == "error"
    assert report.findings == ()
    assert {rule.code for rule in report.rules if rule.status == "error"} >= {"VER002", "VER003"}


def test_without_a_world_behaviour_is_skipped_and_the_verdict_is_pending():
    report, seen, _ = run(
        environment(), worlds={"": World("unavailable", reason="no sandbox", would_need="bwrap")}
    )
    assert seen == {}
    assert report.verdict == "pending"
    statuses = {rule.code: rule.status for rule in report.rules}
    assert statuses["VER001"] == "skip"
    assert statuses["FMT001"] == "pass"
    assert any(row.would_need == "bwrap" for row in report.not_measured)


def test_a_world_that_cannot_be_built_is_the_environments_fault():
    report, _, _ = run(environment(), worlds={"": World("failed", reason="no such package: nope")})
    assert found(report) == {("DEP002", None)}
    assert report.verdict == "rejected"


def test_provisional_results_admit_only_where_the_policy_says_so():
    worlds = {"": dataclasses.replace(READY[""], provisional=True, provisional_reason="rehearsed")}
    report, _, _ = run(environment(), worlds=worlds)
    assert report.verdict == "pending"
    assert report.environment["provisional"] is True
    report, _, _ = run(environment(), worlds=worlds, policy=AdmissionPolicy(allow_provisional=True))
    assert report.verdict == "admitted"


def test_a_waiver_holds_until_its_day_and_never_reads_as_a_pass():
    def answer(ask):
        return Observation("reward", 0.0) if ask.task == "b" else sound(ask)

    waiver = Waiver("VER001", "b", "known", until="2026-06-01")
    report, _, _ = run(environment(), answer, waivers=(waiver,))
    assert report.verdict == "admitted"
    assert report.findings[0].waived is True
    assert {rule.code: rule.status for rule in report.rules}["VER001"] == "fail"
    expired = dataclasses.replace(waiver, until="2026-05-31")
    report, _, _ = run(environment(), answer, waivers=(expired,))
    assert report.verdict == "partial"


def test_an_owners_own_waiver_counts_only_where_the_policy_relaxes_the_rule():
    subject = environment(
        requests={
            "waivers": [{"code": "VER001", "task": "b", "reason": "r", "until": "2027-01-01"}]
        }
    )

    def answer(ask):
        return Observation("reward", 0.0) if ask.task == "b" else sound(ask)

    assert run(subject, answer)[0].verdict == "partial"
    relaxed = AdmissionPolicy(relax=("VER001",))
    assert run(subject, answer, relaxed)[0].verdict == "admitted"


def test_policy_changes_severity_without_asking_anything_again():
    def answer(ask):
        return Observation("reward", 0.0) if ask.task == "b" else sound(ask)

    _, seen, _ = run(environment(), answer)
    mild = AdmissionPolicy(severity={"VER001": "warning"})
    step = advance(Inspection(environment(), READY, mild), seen)
    assert step.report.verdict == "admitted"


def test_an_undeclared_range_warns_and_a_declared_one_rejects():
    def answer(ask):
        return Observation("reward", 3.0) if ask.probe == ORACLE else sound(ask)

    report, _, _ = run(environment(), answer)
    assert {finding.severity for finding in report.findings} == {"warning"}
    declared = environment(reward=RewardSpec(0.0, 1.0, 1.0, declared=True))
    assert run(declared, answer)[0].verdict == "rejected"


def test_the_quick_effort_leaves_determinism_unmeasured_and_says_so():
    report, seen, _ = run(environment(), policy=AdmissionPolicy(effort="quick"))
    assert report.verdict == "admitted"
    assert not any(ask.repeat or ask.variation.hash_seed for ask in seen)
    assert {row.code for row in report.not_measured} >= {"DET001", "DET002"}


def test_certify_bounds_the_flake_rate_below_one_percent():
    report, _, _ = run(environment(ids=("a",)), policy=AdmissionPolicy(effort="certify"))
    reason = {rule.code: rule.reason for rule in report.rules}["DET001"]
    assert "0 of 300 runs" in reason
    assert "below 1.0 %" in reason


def test_an_answer_that_is_right_to_be_empty_is_no_vacuous_verifier():
    subject = environment("scorer", ids=("a",))
    subject = dataclasses.replace(
        subject, tasks=(dataclasses.replace(subject.tasks[0], data={"answer": ""}),)
    )
    report, _, _ = run(subject, lambda ask: Observation("reward", 1.0))
    assert ("VER002", "a") not in found(report)


def test_fingerprints_survive_new_digests_and_a_report_survives_json():
    def answer(ask):
        return Observation("reward", 0.0) if ask.task == "b" else sound(ask)

    report, _, _ = run(environment(), answer)
    other, _, _ = run(environment(digest="qh1:other"), answer)
    assert report.findings[0].fingerprint == other.findings[0].fingerprint
    assert (
        report_from_json({k: v for k, v in report.as_json().items() if k != "schema"}) is not None
    )


def test_unknown_keys_warn_without_touching_the_verdict():
    subject = environment(problems=(Problem("FMT002", "Unknown key 'x'.", "task.toml", "a", "x"),))
    report, _, _ = run(subject)
    assert report.verdict == "admitted"
    assert report.findings[0].severity == "warning"
