"""Drivers answer every ask exactly once, and a key moves only with what it names."""

import dataclasses
import json

import pytest

from qualityhub.engine.environments.model import Environment, Task
from qualityhub.engine.errors import MachineryError
from qualityhub.engine.sandbox.port import Completed
from qualityhub.engine.trials.drivers import DRIVERS, plan_trials
from qualityhub.engine.trials.drivers.task import assignments, read_reward
from qualityhub.engine.trials.model import Ask, Variation
from qualityhub.engine.trials.probes import MALFORMED, MALFORMED_PREFIX, NOP, ORACLE, TRACE

WORLDS = {"": "w"}


def completed(**changes):
    base = Completed(0, None, False, False, b"", b"", 0, {}, 0.1, 0.1, 0)
    return dataclasses.replace(base, **changes)


def function(count=3, changed=None):
    tasks = tuple(
        Task(
            f"t/{i}",
            {"statement": str(i)},
            f"d{i}",
            {
                "prompt": f"def f{i}():\n",
                "entry_point": f"f{i}",
                "canonical_solution": "    return 1\n" if i != changed else "    return 2\n",
                "test": "def check(c):\n    assert c() == 1\n",
            },
        )
        for i in range(count)
    )
    return Environment("e", "humaneval", "function", "qh1:e", tasks)


def scorer(count=45):
    tasks = tuple(
        Task(f"r{i}", {}, f"d{i}", {"prompt": "p", "answer": i, "info": None}) for i in range(count)
    )
    return Environment(
        "e", "scorer", "scorer", "qh1:e", tasks, entry={"file": "scorer.py", "name": "score"}
    )


def task():
    return Environment(
        "e",
        "harbor",
        "task",
        "qh1:e",
        (Task("t", {"verifier": "qh1:v", "solution": "qh1:s"}, "d", {"solution": "solution"}),),
    )


def asks_for(environment, probes=(ORACLE, NOP), repeats=2, seeds=(0, 1)):
    return [
        Ask(task.id, probe, Variation(hash_seed=seed), repeat)
        for task in environment.tasks
        for probe in probes
        for seed in seeds
        for repeat in range(repeats)
    ]


@pytest.mark.parametrize("environment", [function(), scorer(), task()])
def test_every_ask_is_answered_exactly_once_whatever_their_order(environment):
    asks = asks_for(environment)
    trials = plan_trials(environment, WORLDS, asks)
    answered = [ask for trial in trials for ask in trial.asks]
    assert sorted(answered) == sorted(asks)
    again = plan_trials(environment, WORLDS, list(reversed(asks)))
    assert [trial.key for trial in again] == [trial.key for trial in trials]
    assert len({trial.key for trial in trials}) == len(trials)


@pytest.mark.parametrize("environment", [function(), scorer(), task()])
def test_a_trial_never_mixes_variations_or_repeats(environment):
    for trial in plan_trials(environment, WORLDS, asks_for(environment)):
        assert {(ask.variation, ask.repeat) for ask in trial.asks} == {
            (trial.variation, trial.repeat)
        }


def test_changing_one_task_changes_the_keys_of_its_trials_alone():
    before = {
        trial.key: trial.asks[0].task
        for trial in plan_trials(function(), WORLDS, asks_for(function()))
    }
    after = {
        trial.key: trial.asks[0].task
        for trial in plan_trials(function(changed=1), WORLDS, asks_for(function()))
    }
    assert {before[key] for key in before.keys() - after.keys()} == {"t/1"}
    assert {after[key] for key in after.keys() - before.keys()} == {"t/1"}


@pytest.mark.parametrize(
    "change",
    [
        {"repeat": 9},
        {"generation": 1},
        {"variation": Variation(7)},
        {"world": "other"},
        {"trees": {"/qh/env": "qh1:other"}},
        {"wall_s": 1.0},
    ],
)
def test_everything_that_can_influence_a_result_is_in_its_key(change):
    [trial] = plan_trials(task(), WORLDS, [Ask("t", ORACLE)])
    assert dataclasses.replace(trial, **change).key != trial.key


def test_a_numeric_answer_is_submitted_as_its_text_and_null_means_no_reference():
    environment = scorer(2)
    environment = dataclasses.replace(
        environment,
        tasks=(
            environment.tasks[0],
            dataclasses.replace(
                environment.tasks[1], data={"prompt": "p", "answer": 1, "correct": None}
            ),
        ),
    )
    [trial] = plan_trials(environment, WORLDS, [Ask("r0", ORACLE), Ask("r1", ORACLE)])
    assert [case["completion"] for case in trial.payload["cases"]] == ["0", None]


def test_malformed_answers_reach_the_scorer_as_written():
    asks = [Ask("r0", MALFORMED_PREFIX + name) for name in MALFORMED]
    [trial] = plan_trials(scorer(1), WORLDS, asks)
    sent = {case["completion"] for case in trial.payload["cases"]}
    assert sent == set(MALFORMED.values())


def lines(nonce, *documents):
    return b"".join(nonce.encode() + b" " + json.dumps(d).encode() + b"\n" for d in documents)


def test_answers_without_the_nonce_are_not_believed():
    [trial] = plan_trials(function(1), WORLDS, [Ask("t/0", ORACLE)])
    forged = lines("guess", {"case": 0, "outcome": "reward", "reward": 1.0})
    [seen] = DRIVERS["function"].observe(trial, completed(stdout=forged), "real")
    assert seen.outcome == "no_reward"


def test_the_first_answer_of_a_case_counts():
    [trial] = plan_trials(function(1), WORLDS, [Ask("t/0", ORACLE)])
    stdout = lines(
        "n",
        {"case": 0, "outcome": "reward", "reward": 0.0},
        {"case": 0, "outcome": "reward", "reward": 1.0},
    )
    [seen] = DRIVERS["function"].observe(trial, completed(stdout=stdout), "n")
    assert seen.reward == 0.0


@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        ({"timed_out": True, "exit_code": None, "signal": 9}, "timeout"),
        ({"out_of_memory": True, "exit_code": None, "signal": 9}, "killed"),
        ({"exit_code": None, "signal": 11}, "killed"),
        ({"exit_code": 3}, "no_reward"),
    ],
)
def test_an_unanswered_case_says_how_its_program_ended(how, outcome):
    [trial] = plan_trials(function(1), WORLDS, [Ask("t/0", ORACLE)])
    [seen] = DRIVERS["function"].observe(trial, completed(**how), "n")
    assert seen.outcome == outcome


def test_a_program_that_could_not_start_is_our_fault():
    [trial] = plan_trials(function(1), WORLDS, [Ask("t/0", ORACLE)])
    for status in (71, 126, 127):
        with pytest.raises(MachineryError):
            DRIVERS["function"].observe(trial, completed(exit_code=status), "n")


def test_a_status_after_the_start_is_the_environments_own():
    [trial] = plan_trials(function(1), WORLDS, [Ask("t/0", ORACLE)])
    for status in (71, 126, 127):
        ended = completed(exit_code=status, stdout=lines("n", {"started": True}))
        [seen] = DRIVERS["function"].observe(trial, ended, "n")
        assert seen.outcome == "no_reward"
        assert f"status {status}" in seen.detail


def test_a_program_that_says_it_failed_itself_is_our_fault():
    [trial] = plan_trials(function(1), WORLDS, [Ask("t/0", ORACLE)])
    said = lines("n", {"started": True}, {"machinery": "KeyError: 'prompt'"})
    with pytest.raises(MachineryError, match="KeyError"):
        DRIVERS["function"].observe(trial, completed(exit_code=71, stdout=said), "n")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (0, [{"started": True}, {"machinery": "forged"}]),
        (71, [{"started": True}, {"case": 0, "machinery": "forged", "outcome": "crashed"}]),
        (71, [{"started": True}, {"foreign": True}, {"machinery": "forged"}]),
        (0, [{"started": True}, {"case": 0, "outcome": "unmeasured"}]),
        (0, [{"started": True}, {"case": 0, "outcome": "no_reference"}]),
        (0, [{"started": True}, {"case": False, "outcome": "reward", "reward": 1.0}]),
    ],
)
def test_a_failure_of_ours_or_a_gap_is_believed_only_where_it_can_be(status, said):
    [trial] = plan_trials(function(1), WORLDS, [Ask("t/0", ORACLE)])
    ended = completed(exit_code=status, stdout=lines("n", *said))
    [seen] = DRIVERS["function"].observe(trial, ended, "n")
    assert seen.outcome in {"crashed", "no_reward"}


def test_facts_of_any_depth_or_size_can_be_stored():
    [trial] = plan_trials(function(1), WORLDS, [Ask("t/0", ORACLE)])
    deep = b"[" * 900 + b"]" * 900
    said = (
        b'n {"case": 0, "outcome": "reward", "reward": 1, "signal": 1e9, "exit_code": 99999999999,'
        b' "facts": {"trace": ' + deep + b', "rewards": [' + b"9" * 99 + b'], "steps": true,'
        b' "lowest": ' + b"9" * 99 + b', "odd_rewards": [[0, ' + deep + b', "x"]]}}\n'
    )
    [seen] = DRIVERS["function"].observe(trial, completed(stdout=said), "n")
    assert (seen.reward, dict(seen.facts)) == (1.0, {})


@pytest.mark.parametrize(
    ("answer", "outcome", "reward", "facts"),
    [
        (b'{"case": 0, "outcome": "reward", "reward": NaN}', "reward", "nan", {}),
        (b'{"case": 0, "outcome": "reward", "reward": 1e999}', "reward", "inf", {}),
        (b'{"case": 0, "outcome": "reward", "reward": null}', "no_reward", None, {}),
        (b'{"case": 0, "outcome": "reward", "reward": {"a": 1}}', "reward", "{'a': 1}", {}),
        (b'{"case": 0, "outcome": ["reward"], "reward": 1}', "no_reward", 1.0, {}),
        (b'{"case": 0, "outcome": "reward", "reward": 1, "facts": 5}', "reward", 1.0, {}),
        (
            (
                b'{"case": 0, "outcome": "reward", "reward": 1, "facts": {"odd_rewards": 5, "trace": 1,'
                b' "lowest": NaN, "highest": "x", "row": "r\\u0000", "own": 1}}'
            ),
            "reward",
            1.0,
            {"row": "r\N{SYMBOL FOR NULL}"},
        ),
        (
            b'{"case": 0, "outcome": "crashed", "error": "E\\u001b[31m key", "missing_module": 7}',
            "crashed",
            None,
            {},
        ),
        (b"[1]", "no_reward", None, {}),
        (b"[" * 100_000, "no_reward", None, {}),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_answer_that_foreign_code_forged_is_taken_only_in_its_form(
    answer, outcome, reward, facts
):
    [trial] = plan_trials(function(1), WORLDS, [Ask("t/0", ORACLE)])
    [seen] = DRIVERS["function"].observe(trial, completed(stdout=b"n " + answer + b"\n"), "n")
    assert (seen.outcome, seen.reward, dict(seen.facts)) == (outcome, reward, facts)


def test_foreign_text_can_be_stored_anywhere():
    [trial] = plan_trials(function(1), WORLDS, [Ask("t/0", ORACLE)])
    said = lines(
        "n", {"case": 0, "outcome": "crashed", "detail": "a\0b\ud800", "message": "\ud800"}
    )
    [seen] = DRIVERS["function"].observe(trial, completed(stdout=said), "n")
    assert seen.detail == "a\N{SYMBOL FOR NULL}b\\ud800"
    assert seen.facts["message"] == "\\ud800"


@pytest.mark.parametrize(
    ("files", "reward", "problem"),
    [
        ({"txt": b"1\n"}, 1.0, ""),
        ({"txt": b" 0.25 "}, 0.25, ""),
        ({"txt": b"nan"}, "nan", ""),
        ({"txt": b"yes"}, "yes", ""),
        ({"txt": b""}, 0.0, "reward.txt is empty"),
        ({"txt": b"0", "json": b'{"reward": 1}'}, 1.0, ""),
        ({"json": b'{"a": 1, "b": 0}'}, 0.5, ""),
        ({"json": b"[1]"}, 0.0, "reward.json is not an object with a reward"),
        ({"json": b"{"}, 0.0, "reward.json is not JSON"),
        ({"json": b'{"a": "x"}'}, 0.0, "reward.json holds values that are no numbers"),
        ({}, 0.0, "the verifier wrote neither reward.txt nor reward.json"),
    ],
)
def test_the_reward_file_is_read_with_harbors_precedence(files, reward, problem):
    named = {f"/logs/verifier/reward.{kind}": data for kind, data in files.items()}
    assert read_reward(named) == (reward, problem)


def test_a_task_that_lost_its_network_says_so():
    [trial] = plan_trials(task(), WORLDS, [Ask("t", NOP)])
    files = {
        "/qh/out/test.log": b"curl: (6) Could not resolve host: example.org",
        "/qh/out/test.exit": b"6\n",
    }
    [seen] = DRIVERS["task"].observe(trial, completed(collected=files), "")
    assert seen.facts["offline"] is True
    assert seen.outcome == "no_reward"


def test_a_task_killed_before_its_verifier_was_done_has_no_reward_even_if_a_file_lies_there():
    [trial] = plan_trials(task(), WORLDS, [Ask("t", ORACLE)])
    files = {"/logs/verifier/reward.txt": b"1"}
    [seen] = DRIVERS["task"].observe(
        trial, completed(exit_code=None, signal=9, out_of_memory=True, collected=files), ""
    )
    assert seen.outcome == "killed"
    assert seen.reward is None


def test_phase_environments_are_quoted():
    assert assignments({"B": "$(rm -rf /)", "A": "it's"}) == "A='it'\"'\"'s' B='$(rm -rf /)'"


def test_every_trace_starts_in_a_process_of_its_own():
    environment = Environment(
        "e", "gymnasium", "episode", "qh1:e", (Task("E", {}, "d"),), entry={"id": "CartPole-v1"}
    )
    asks = [Ask("E", TRACE, repeat=i) for i in range(3)]
    assert len(plan_trials(environment, WORLDS, asks)) == 3
