"""Tags and filters, without a database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from qualityhub.dashboard.states import SEVERITIES, SHAPES, STATES, state_of
from qualityhub.dashboard.templatetags import qh
from qualityhub.engine.report import TaskVerdict, Verdict
from qualityhub.gates.choices import GateStatus, RunStatus
from qualityhub.gates.choices import Verdict as GateVerdict
from qualityhub.inspections.choices import AuditStatus, InspectionStatus
from qualityhub.registry.choices import Admission


def test_every_value_that_is_stored_has_a_state():
    stored = {
        *Verdict.__args__,
        *TaskVerdict.__args__,
        *GateVerdict.values,
        *GateStatus.values,
        *RunStatus.values,
        *InspectionStatus.values,
        *AuditStatus.values,
        *Admission.values,
        "pass",
        "fail",
        "skip",
    }
    assert stored - set(STATES) == set()


@pytest.mark.parametrize(
    "group",
    [
        ("admitted", "partial", "rejected", "pending", "error", "not_judged"),
        ("admitted", "quarantined", "pending", "error"),
        ("promote", "block", "inconclusive", "incomparable"),
        ("pass", "fail", "skip", "errored"),
    ],
)
def test_values_that_stand_side_by_side_differ_in_word_and_shape(group):
    assert len({STATES[name].word for name in group}) == len(group)
    assert len({STATES[name].shape for name in group}) == len(group)


def test_severities_differ_in_word_and_shape():
    levels = [SEVERITIES[name] for name in ("error", "warning", "info", "lead")]
    assert len({level.word for level in levels}) == len({level.shape for level in levels}) == 4


def test_a_state_says_its_word_beside_its_shape():
    shown = qh.state("rejected")
    assert SHAPES["cross"] in shown
    assert shown.endswith("rejected</span>")
    assert 'aria-hidden="true"' in shown


def test_states_nobody_knows_are_shown_as_text():
    assert "&lt;b&gt;" in qh.state("<b>")
    assert state_of(None).word == "not inspected yet"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0491, "+4.9"), (-0.0491, "−4.9"), (0.0, "0.0"), (-0.0001, "0.0"), (None, "–"), ("", "–")],  # noqa: RUF001
)
def test_points_carry_their_sign(value, shown):
    assert qh.points(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1234567, "1,234,567"), (0, "0"), (None, "–"), ("", "–"), (True, "–")],  # noqa: RUF001
)
def test_numbers_have_separators(value, shown):
    assert qh.number(value) == shown


@pytest.mark.parametrize(
    ("age", "shown"),
    [
        (timedelta(seconds=5), "just now"),
        (timedelta(minutes=1), "1 minute ago"),
        (timedelta(hours=5), "5 hours ago"),
        (timedelta(days=3), "3 days ago"),
        (timedelta(days=-3, minutes=-1), "in 3 days"),
        (timedelta(seconds=-5), "soon"),
    ],
)
def test_times_are_told_in_words_and_exactly(age, shown):
    moment = datetime.now(UTC) - age
    page = qh.ago(moment)
    assert f">{shown}</time>" in page
    assert f'datetime="{moment.isoformat(timespec="seconds")}"' in page


def test_long_ago_is_a_date():
    assert ">2020-02-03</time>" in qh.ago(datetime(2020, 2, 3, tzinfo=UTC))
    assert "never" in qh.ago(None)


def test_stacked_counts_say_in_words_what_they_draw():
    bar = qh.stacked({"admitted": 3, "rejected": 1, "pending": 0}, "Environments:")
    assert 'aria-label="Environments: 3 admitted, 1 rejected"' in bar
    assert "width:75.00%" in bar
    assert bar.count("<i ") == 2
    assert qh.stacked({}) == ""


def test_ticked_parts_are_code_and_the_rest_is_text():
    assert qh.ticks("use `a<b` & <c>") == "use <code>a&lt;b</code> &amp; &lt;c&gt;"


@pytest.mark.parametrize(
    "value",
    [
        "javascript:alert(1)",
        "traces/1",
        "",
        None,
        "https://a\n.b",
        "data:text/html,x",
        " https://a",
    ],
)
def test_only_web_addresses_are_linked(value):
    assert qh.address(value) == ""


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.00001, "below 0.0001"), (0.05, "0.05"), (1.0, "1"), (None, "–")],  # noqa: RUF001
)
def test_chances_are_never_shown_as_nothing(value, shown):
    assert qh.chance(value) == shown


def test_plurals():
    assert [qh.plural(count, "task") for count in (0, 1, 2)] == ["0 tasks", "1 task", "2 tasks"]
    assert qh.plural(2, "entry|entries") == "2 entries"
