from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from qualityhub.cli.recent import recall, remember
from qualityhub.cli.reproduce import asks_from
from qualityhub.engine.environments.model import Environment
from qualityhub.engine.errors import InvalidInputError
from qualityhub.engine.rules.catalogue import find_rule
from qualityhub.engine.rules.verdict import fingerprint
from qualityhub.engine.trials.codec import ask_to_evidence
from qualityhub.engine.trials.model import Ask, Observation, Variation
from qualityhub.engine.trials.variations import screens, singles

EMPTY = Environment("demo", "scorer", "scorer", "qh1:x", ())

ROWS = [
    {
        "task_id": "a/0",
        "prompt": "def one():\n",
        "entry_point": "one",
        "canonical_solution": "    return 1\n",
        "test": "def check(candidate):\n    assert candidate() == 1\n",
    },
]


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "demo.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


@pytest.fixture
def sandbox(monkeypatch):
    """Answers asks with a prepared observation instead of running them."""
    import qualityhub.engine.inspect as module

    state = SimpleNamespace(observation=Observation("reward", 0.0), rounds=[])

    def reproduce(source, asks, options):
        state.rounds.append(list(asks))
        return [(ask, state.observation) for ask in asks]

    monkeypatch.setattr(module, "reproduce", reproduce)
    return state


def ground_of(rule_code, observation, source):
    from qualityhub.engine.environments.reader import read_environment
    from qualityhub.engine.policy import AdmissionPolicy
    from qualityhub.engine.rules.model import Context, Found
    from qualityhub.engine.trials.model import World

    environment = read_environment(str(source))
    context = Context(environment, {"": World("ready")}, AdmissionPolicy(), lambda ask: observation)
    (found,) = [
        item
        for item in find_rule(rule_code).check_task(context, environment.tasks[0])
        if isinstance(item, Found)
    ]
    return found.ground


@pytest.fixture
def report(make_report, make_finding, source, sandbox, tmp_path):
    """A report in which the reference of a/0 was not accepted."""
    found = make_finding(
        "VER001",
        "a/0",
        evidence={
            "expected": "reward >= 1",
            "seen": {"outcome": "reward", "reward": 0.0},
            "asks": [ask_to_evidence(Ask("a/0", "oracle"))],
        },
        fingerprint=fingerprint("VER001", "a/0", ground_of("VER001", sandbox.observation, source)),
    )
    path = tmp_path / "report.json"
    path.write_text(json.dumps(make_report(found, source=str(source)).as_json()))
    return path


def test_a_finding_that_shows_itself_again_is_exit_1(call, report, sandbox):
    result = call("reproduce", "f-VER001-a/0", "--report", report, "--format", "json")
    assert result.code == 1
    assert result.json["reproduced"] is True
    assert result.json["now"]
    assert sandbox.rounds[0] == [Ask("a/0", "oracle")]
    text = call("reproduce", "f-VER001-a/0", "--report", report).out
    assert text.startswith("REPRODUCED  VER001 a/0")
    assert "then  expected  reward >= 1" in text


def test_a_finding_that_does_not_is_exit_0(call, report, sandbox):
    sandbox.observation = Observation("reward", 1.0)
    result = call("reproduce", "f-VER001-a/0", "--report", report)
    assert result.code == 0
    assert result.out.startswith("NOT REPRODUCED")


def test_a_fingerprint_names_a_finding_too(call, report, sandbox):
    mark = json.loads(report.read_text())["findings"][0]["fingerprint"]
    assert call("reproduce", mark, "--report", report).code == 1


def test_a_failure_of_our_own_is_exit_4_and_no_verdict(call, report, sandbox):
    sandbox.observation = Observation("machinery", detail="the store is full")  # type: ignore[arg-type]
    result = call("reproduce", "f-VER001-a/0", "--report", report)
    assert result.code == 4
    assert result.out == ""


def test_an_unknown_finding_is_named_with_those_there_are(call, report):
    result = call("reproduce", "f-none", "--report", report)
    assert result.code == 2
    assert "f-VER001-a/0" in result.err


def test_a_task_that_is_gone_is_named(call, report, source, sandbox):
    source.write_text(source.read_text().replace("a/0", "b/0"))
    result = call("reproduce", "f-VER001-a/0", "--report", report)
    assert result.code == 2
    assert "'a/0'" in result.err
    assert sandbox.rounds == []


def test_another_place_of_the_source_can_be_named(call, report, source, sandbox, tmp_path):
    moved = source.rename(tmp_path / "moved.jsonl")
    assert call("reproduce", "f-VER001-a/0", "--report", report).code == 2
    assert call("reproduce", "f-VER001-a/0", "--report", report, "--source", moved).code == 1


def test_what_was_inspected_lately_needs_no_report(call, report, sandbox, tmp_path, monkeypatch):
    document = json.loads(report.read_text())
    document["environment"]["source"] = "demo.jsonl"
    monkeypatch.chdir(tmp_path)
    remember(tmp_path / "home", document)
    monkeypatch.chdir("/")
    assert call("reproduce", "f-VER001-a/0").code == 1
    result = call("reproduce", "f-other")
    assert result.code == 2
    assert "--report" in result.err


def test_kept_reports_are_their_owners_alone_and_broken_ones_are_passed_over(
    tmp_path, make_report, make_finding
):
    home = tmp_path / "home"
    remember(home, make_report(make_finding()).as_json())
    (kept,) = (home / "reports").glob("*.json")
    assert kept.stat().st_mode & 0o077 == 0
    assert (home / "reports").stat().st_mode & 0o077 == 0
    for text in (
        "",
        "[]",
        '{"report": 1}',
        '{"report": {"schema": "qualityhub.inspection/1"}, "folder": 3}',
    ):
        (home / "reports" / "broken.json").write_text(text)
        assert recall(home, "f-VER001-t1")["environment"]["name"] == "demo"
    assert recall(home, "f-none") is None


def test_a_home_that_cannot_be_written_does_not_fail_an_inspection(tmp_path, make_report):
    (tmp_path / "home").write_text("a file")
    remember(tmp_path / "home", make_report().as_json())
    assert recall(tmp_path / "home", "x") is None


def test_asks_survive_the_way_through_a_report():
    ask = Ask("t", "malformed:words", Variation(3, 4), 5)
    assert asks_from(json.loads(json.dumps([ask_to_evidence(ask)]))) == [ask]
    assert asks_from(None) == []


@pytest.mark.parametrize("family", ["function", "scorer", "episode", "task"])
def test_every_change_that_a_rule_asks_for_survives_too(family):
    environment = replace(EMPTY, family=family, entry={"file": "scorer.py"})
    for variation in (*screens(environment), *singles(environment)):
        ask = Ask("t", "oracle", variation, cold=True)
        assert asks_from(json.loads(json.dumps([ask_to_evidence(ask)]))) == [ask]


@pytest.mark.parametrize(
    "rows",
    [
        "x",
        [1],
        [{"task": "t"}],
        [{"task": "t", "probe": "p", "repeat": "1"}],
        [{"task": "t", "probe": "p", "seed": True}],
        [{"task": 1, "probe": "p"}],
        [{"task": "t", "probe": "p", "cold": "yes"}],
        [{"task": "t", "probe": "p", "clock": 365}],
        [{"task": "t", "probe": "p", "clock": "tomorrow"}],
        [{"task": "t", "probe": "p", "clock": "@2031-02-31"}],
        [{"task": "t", "probe": "p", "load": 10**9}],
        [{"task": "t", "probe": "p", "noise": -1}],
        [{"task": "t", "probe": "p", "manner": "sideways"}],
        [{"task": "t", "probe": "p", "home": "/proc"}],
        [{"task": "t", "probe": "p", "timezone": "x\u0000y"}],
        [{}] * 2000,
    ],
)
def test_a_malformed_list_of_asks_is_refused(rows):
    with pytest.raises(InvalidInputError) as error:
        asks_from(rows)
    assert error.value.code == "report.malformed"
