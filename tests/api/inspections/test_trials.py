"""``trials/{key}`` and its evidence: for the team, whole, and nothing of it in any export."""

from __future__ import annotations

import json

import pytest

from qualityhub.engine.trials.model import Ask, Observation, Variation
from qualityhub.inspections.models import TrialRecord
from qualityhub.inspections.results import evidence_store

pytestmark = pytest.mark.django_db
SECRET = b"AssertionError: expected 42\x1b[2J\0\xff"


def address(result, rest=""):
    return f"/api/v1/trials/{result.key}{rest}"


@pytest.fixture
def inspection(judged, make_version):
    return judged(make_version(), bad=["t1"])


@pytest.fixture
def result(make_trial, inspection):
    return make_trial(
        inspection,
        {"stdout": SECRET, "/logs/verifier/reward.txt": b"0"},
        observation=Observation("crashed", detail="Traceback \0", facts={"error": "ValueError"}),
        exit_code=None,
        signal=11,
    )


def test_a_teammate_reads_how_it_ended(teammate_api, inspection, result):
    document = teammate_api.get(address(result)).json()
    assert document["schema"] == "qualityhub.trial/1"
    assert document["trial"] == result.key
    assert document["class"] == "answer_key"
    assert document["ended"]["signal"] == 11
    assert document["resources"]["seconds"] == 0.5
    [seen] = document["observations"]
    assert (seen["outcome"], seen["facts"]) == ("crashed", {"error": "ValueError"})
    assert document["inspections"] == [inspection.public_id]
    assert document["evidence"] == address(result, "/evidence")


def test_the_evidence_is_all_it_wrote(owner_api, result):
    document = owner_api.get(address(result, "/evidence")).json()
    assert document["state"] == "kept"
    stdout, reward = document["parts"]
    assert (stdout["name"], stdout["bytes"], stdout["left_out"]) == ("stdout", len(SECRET), 0)
    assert stdout["head"] == "AssertionError: expected 42\x1b[2J\ufffd\\xff"
    assert (reward["name"], reward["head"]) == ("/logs/verifier/reward.txt", "0")


def test_what_was_cut_says_how_much(owner_api, make_trial, inspection, settings):
    settings.QH_EVIDENCE_BYTES = 3000
    cut = make_trial(inspection, {"stdout": b"x" * 10_000})
    [part] = owner_api.get(address(cut, "/evidence")).json()["parts"]
    assert part["bytes"] == 10_000
    assert part["left_out"] == 7000
    assert len(part["head"]) + len(part["tail"]) == 3000


def test_evidence_that_is_gone_or_damaged_leaves_the_previews(owner_api, make_trial, inspection):
    lost = make_trial(inspection, {"stdout": b"y" * 5000}, stdout="y" * 4000, stdout_bytes=5000)
    store = evidence_store()
    path = store.root / lost.evidence[:2] / lost.evidence[2:4] / f"{lost.evidence}.zst"
    path.write_bytes(b"damaged")
    for _ in range(2):
        document = owner_api.get(address(lost, "/evidence")).json()
        assert document["state"] == "preview"
        [part] = document["parts"]
        assert (part["bytes"], part["left_out"], part["tail"]) == (5000, 1000, "y" * 4000)
    assert not path.exists()


def test_a_trial_without_a_blob_is_whole(owner_api, make_trial, inspection):
    quiet = make_trial(inspection, stdout="all\n", stdout_bytes=4)
    document = owner_api.get(address(quiet, "/evidence")).json()
    assert document["state"] == "whole"
    assert [part["tail"] for part in document["parts"]] == ["all\n"]


@pytest.mark.parametrize("rest", ["", "/evidence"])
def test_an_outsider_is_told_there_is_none(outsider_api, anonymous_api, result, is_problem, rest):
    is_problem(outsider_api.get(address(result, rest)), 404, "trial.not_found")
    assert anonymous_api.get(address(result, rest)).status_code in {401, 403}


@pytest.mark.parametrize("rest", ["", "/evidence"])
def test_each_team_reads_its_own_result_of_the_same_trial(
    outsider_api, owner_api, other_team, result, rest
):
    row = TrialRecord.objects.get(key=result.key)
    row.pk, row.team = None, other_team
    row.result = {**row.result, "seconds": 99.0}
    row.save()
    # The seal is that of the other content: damaged, and no way to read the first team's.
    assert outsider_api.get(address(result, rest)).json()["code"] == "trial.damaged"
    assert owner_api.get(address(result, rest)).status_code == 200


def test_a_token_of_training_alone_may_not_read_it(make_api, owner, team, result, is_problem):
    api = make_api(owner, team, ["admission:read"])
    for rest in ("", "/evidence"):
        is_problem(api.get(address(result, rest)), 403, "access.scope")


@pytest.mark.parametrize("key", ["x", "qh1:" + "0" * 64, "qh1:" + "Z" * 64, "%00", "..%2f"])
@pytest.mark.parametrize("rest", ["", "/evidence"])
def test_what_is_no_key_is_404(owner_api, result, is_problem, key, rest):
    assert owner_api.get(f"/api/v1/trials/{key}{rest}").status_code == 404


def test_the_name_of_a_blob_is_no_key(owner_api, result):
    assert owner_api.get(f"/api/v1/trials/{result.evidence}").status_code == 404
    assert owner_api.get(f"/api/v1/trials/qh1:{result.evidence}").status_code == 404


def test_a_damaged_result_is_404_and_says_what_to_do(owner_api, result, is_problem):
    TrialRecord.objects.filter(key=result.key).update(seal="0" * 64)
    problem = is_problem(owner_api.get(address(result)), 404, "trial.damaged")
    assert "runs again" in json.dumps(problem)


def test_an_unknown_parameter_is_refused(owner_api, result):
    assert owner_api.get(address(result), {"raw": "1"}).status_code == 400


def test_no_export_holds_what_a_trial_wrote(owner_api, inspection, result):
    for form in ("sarif", "markdown", "junit"):
        text = owner_api.get(f"/api/v1/inspections/{inspection.public_id}/report?format={form}")
        assert b"expected 42" not in text.content


def test_each_observation_says_what_it_answers(owner_api, make_trial, inspection):
    asks = (Ask("a", "oracle", Variation(seed=7)), Ask("b", "nop", cold=True))
    seen = owner_api.get(address(make_trial(inspection, asks=asks))).json()["observations"]
    assert seen[0]["ask"] == {
        "task": "a",
        "probe": "oracle",
        "hash_seed": 0,
        "seed": 7,
        "repeat": 0,
    }
    assert seen[1]["ask"]["cold"] is True
    assert seen[1]["ask"]["probe"] == "nop"


def test_asks_of_other_teams_are_not_shown(*, owner_api, make_trial, inspection, other_team):
    """Rows that a team should never share are not trusted to be unshared."""
    found = make_trial(inspection, asks=(Ask("secret", "oracle"),))
    type(inspection).objects.filter(pk=inspection.pk).update(team=other_team)
    [seen] = owner_api.get(address(found)).json()["observations"]
    assert seen["ask"] is None
