from __future__ import annotations

import pytest

from qualityhub.gates.models import Baseline, Gate, GatePolicy
from qualityhub.gates.services import gate_decide

pytestmark = pytest.mark.django_db
GATE = "gate_" + "a" * 26


@pytest.fixture
def sides(sealed):
    return sealed("base", 30), sealed("cand", 10)


@pytest.fixture
def started(owner_api, sides):
    """A waiting gate of the candidate against the baseline, under a policy of the team."""
    before, after = sides
    owner_api.post("/api/v1/policies", {"toml": "[gate]\n", "name": "usual"})
    answer = owner_api.post(
        "/api/v1/gates",
        {"candidate": after.public_id, "baseline": [before.public_id], "policy": "usual"},
    )
    assert answer.status_code == 202
    return answer.json()["gate"]["id"]


def test_a_gate_is_started_decided_and_read(
    owner_api, sides, sent_tasks, django_capture_on_commit_callbacks
):
    before, after = sides
    with django_capture_on_commit_callbacks(execute=True):
        answer = owner_api.post(
            "/api/v1/gates",
            {"candidate": [after.public_id], "baseline": [before.checkpoint.public_id]},
        )
    body = answer.json()
    gate = body["gate"]
    assert answer.status_code == 202
    assert answer["Location"] == body["job"]["url"]
    assert sent_tasks.sent == [("gate.decide", (gate["id"],), "gate")]
    assert (gate["status"], gate["verdict"], gate["report"]) == ("waiting", "", None)
    waiting = owner_api.get(f"/api/v1/gates/{gate['id']}/report")
    assert (waiting.status_code, waiting.json()["code"]) == (409, "gates.not_decided")
    assert owner_api.get(answer["Location"]).json()["status"] == "queued"

    gate_decide(gate["id"])
    shown = owner_api.get(f"/api/v1/gates/{gate['id']}").json()
    assert (shown["status"], shown["verdict"]) == ("decided", "block")
    assert shown["candidate_runs"] == [after.public_id]
    assert shown["baseline_runs"] == [before.public_id]
    report = owner_api.get(shown["report"]).json()
    assert report == Gate.objects.get().report
    assert (report["schema"], report["verdict"]) == ("qualityhub.gate/1", "block")
    job = owner_api.get(answer["Location"]).json()
    assert (job["status"], job["result"]["verdict"]) == ("succeeded", "block")


def test_the_worker_decides_through_the_same_service(started):
    from workers.tasks.gate import decide, sweep, verify_rollups

    assert decide(started) == "decided"
    assert decide(started) == "decided"
    assert sweep() == 0
    assert verify_rollups() == 0


def test_a_lost_ticket_is_sent_again(started, sent_tasks):
    from datetime import timedelta

    from django.db.models import F

    from workers.tasks.gate import sweep

    assert sweep() == 0
    Gate.objects.update(created_at=F("created_at") - timedelta(minutes=2))
    assert sweep() == 1
    assert sent_tasks.sent[-1] == ("gate.decide", (started,), "gate")


def test_a_figure_is_drawn_in_both_themes(owner_api, started):
    gate_decide(started)
    figures = [
        owner_api.get(f"/api/v1/gates/{started}/figure?theme={theme}").json()
        for theme in ("light", "dark")
    ]
    assert all(figure["data"] and figure["layout"] for figure in figures)
    assert figures[0] != figures[1]
    assert owner_api.get(f"/api/v1/gates/{started}/figure").json() == figures[0]
    assert owner_api.get(f"/api/v1/gates/{started}/figure?theme=blue").status_code == 400


def test_gates_are_listed_by_what_is_asked_for(owner_api, started, sides):
    before, after = sides
    path = "/api/v1/gates"
    assert [g["id"] for g in owner_api.get(path).json()["results"]] == [started]
    assert owner_api.get(f"{path}?status=decided").json()["results"] == []
    gate_decide(started)
    assert len(owner_api.get(f"{path}?status=decided&verdict=block").json()["results"]) == 1
    assert owner_api.get(f"{path}?verdict=promote").json()["results"] == []
    candidate = after.checkpoint.public_id
    assert len(owner_api.get(f"{path}?candidate={candidate}").json()["results"]) == 1
    other = before.checkpoint.public_id
    assert owner_api.get(f"{path}?candidate={other}").json()["results"] == []
    for query in ("?status=done", "?verdict=good", "?canditate=x", "?limit=1000"):
        assert owner_api.get(f"{path}{query}").status_code == 400


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"candidate": "run_" + "b" * 26}, 404, "run.not_found"),
        ({"candidate": "ckpt_" + "b" * 26}, 404, "checkpoint.not_found"),
        ({"candidate": []}, 422, "input.invalid"),
        ({"candidate": 7}, 422, "input.invalid"),
        ({"candidate": ["x" * 200]}, 422, "input.invalid"),
        ({"candidate": ["x"] * 51}, 422, "input.invalid"),
        ({"candidate": {"id": "x"}}, 422, "input.invalid"),
        ({"baseline": ["nonsense"]}, 404, "run.not_found"),
        ({"policy": "none-such"}, 404, "policy.not_found"),
        ({"policy": "pol_" + "b" * 26}, 404, "policy.not_found"),
        ({"policy": "a\0b"}, 422, "input.invalid"),
        ({"canidate": "x"}, 422, "input.invalid"),
    ],
)
def test_a_gate_of_what_does_not_fit_is_refused(owner_api, sides, change, status, code):
    before, after = sides
    body = {"candidate": [after.public_id], "baseline": [before.public_id], **change}
    answer = owner_api.post("/api/v1/gates", body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert not Gate.objects.exists()


def test_sides_that_cannot_be_compared_are_refused(owner_api, sides, run, checkpoint):
    before, after = sides
    for candidate, baseline, status, code in (
        (run, before, 409, "gates.run_open"),
        (before, before, 422, "gates.same_run"),
    ):
        answer = owner_api.post(
            "/api/v1/gates", {"candidate": candidate.public_id, "baseline": baseline.public_id}
        )
        assert (answer.status_code, answer.json()["code"]) == (status, code)
    mixed = {"candidate": [before.public_id, after.public_id], "baseline": before.public_id}
    assert owner_api.post("/api/v1/gates", mixed).json()["code"] == "gates.mixed_checkpoints"
    run.delete()
    empty = {"candidate": checkpoint.public_id, "baseline": before.public_id}
    assert owner_api.post("/api/v1/gates", empty).json()["code"] == "gates.no_runs"
    nothing = {"candidate": after.public_id}
    assert owner_api.post("/api/v1/gates", nothing).json()["code"] == "gates.no_baseline"


def test_another_teams_runs_and_gates_are_not_there(outsider_api, owner_api, started, sides):
    before, after = sides
    gate_decide(started)
    for path in (started, f"{started}/report", f"{started}/figure"):
        assert outsider_api.get(f"/api/v1/gates/{path}").status_code == 404
        assert owner_api.get(f"/api/v1/gates/{path}".replace(started, GATE)).status_code == 404
    assert outsider_api.get("/api/v1/gates").json()["results"] == []
    body = {"candidate": after.public_id, "baseline": before.public_id}
    assert outsider_api.post("/api/v1/gates", body).status_code == 404


def test_a_repeated_post_starts_one_gate(owner_api, sides):
    before, after = sides
    body = {"candidate": after.public_id, "baseline": before.public_id}
    answers = [owner_api.post("/api/v1/gates", body, HTTP_IDEMPOTENCY_KEY="g-1") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json() == answers[1].json()
    assert answers[0]["Location"] == answers[1]["Location"]
    assert Gate.objects.count() == 1


def test_a_baseline_is_set_listed_and_used(owner_api, sides, domain):
    before, after = sides
    answer = owner_api.post(
        "/api/v1/baselines",
        {"runs": before.public_id, "kind": "last_promoted", "reason": "release 4"},
    )
    made = answer.json()
    assert answer.status_code == 201
    assert (made["runs"], made["domain"], made["active"]) == ([before.public_id], None, True)
    assert owner_api.get(answer["Location"]).json() == made
    own = {"runs": [before.public_id], "kind": "last_promoted", "domain": domain.slug}
    assert owner_api.post("/api/v1/baselines", own).json()["domain"] == "code"
    gate = owner_api.post("/api/v1/gates", {"candidate": after.public_id}).json()["gate"]
    assert gate["baseline"] == before.checkpoint.public_id
    assert gate["domain_baselines"] == {"code": [before.public_id]}
    owner_api.post("/api/v1/baselines", {"runs": after.public_id, "kind": "last_promoted"})
    assert len(owner_api.get("/api/v1/baselines").json()["results"]) == 2
    assert len(owner_api.get("/api/v1/baselines?active=all").json()["results"]) == 3
    assert owner_api.get("/api/v1/baselines?kind=anchor").json()["results"] == []
    assert owner_api.get("/api/v1/baselines?kind=x").status_code == 400


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"kind": "best"}, 422),
        ({"kind": None}, 422),
        ({"runs": []}, 422),
        ({"runs": ["run_" + "b" * 26]}, 404),
        ({"domain": "none-such"}, 404),
        ({"reason": "x" * 2001}, 422),
        ({"reason": "a\0b"}, 422),
        ({"kinds": "anchor"}, 422),
    ],
)
def test_a_baseline_that_does_not_fit_is_refused(owner_api, sides, change, status):
    body = {"runs": [sides[0].public_id], "kind": "anchor", **change}
    assert owner_api.post("/api/v1/baselines", body).status_code == status
    assert not Baseline.objects.exists()


def test_policies_are_versions_that_are_added_and_retired(owner_api, sides):
    before, after = sides
    one = owner_api.post("/api/v1/policies", {"toml": "[gate]\nname = 'strict'\n"})
    assert (one.status_code, one.json()["version"]) == (201, 1)
    same = owner_api.post("/api/v1/policies", {"toml": "[gate]\nname = 'strict'\n"})
    assert (same.status_code, same.json()["id"]) == (200, one.json()["id"])
    two = owner_api.post(
        "/api/v1/policies", {"toml": "[gate]\nname = 'strict'\nalpha = 0.01\n"}
    ).json()
    assert two["version"] == 2
    listed = owner_api.get("/api/v1/policies?name=strict").json()["results"]
    assert [item["version"] for item in listed] == [2, 1]
    body = {"candidate": after.public_id, "baseline": before.public_id, "policy": "strict"}
    gate = owner_api.post("/api/v1/gates", body).json()["gate"]
    assert gate["policy"] == {"id": two["id"], "name": "strict", "version": 2}
    retired = owner_api.delete(f"/api/v1/policies/{two['id']}")
    assert retired.json()["retired"] is True
    gate = owner_api.post("/api/v1/gates", body).json()["gate"]
    assert gate["policy"]["version"] == 1
    by_id = owner_api.post("/api/v1/gates", body | {"policy": two["id"]})
    assert (by_id.status_code, by_id.json()["code"]) == (409, "policy.retired")


@pytest.mark.parametrize(
    ("toml", "code"),
    [
        ("[gate", "policy.not_toml"),
        ("[gate]\nalfa = 0.1", "input.unknown_key"),
        ("[gate]\nalpha = 'x'", "input.wrong_type"),
        ("", None),
        (7, None),
        ("a = 1\0", "input.invalid"),
    ],
)
def test_a_policy_that_cannot_be_read_is_refused(owner_api, toml, code):
    answer = owner_api.post("/api/v1/policies", {"toml": toml, "name": "p"})
    assert answer.status_code == 422
    if code:
        assert answer.json()["code"] == code
    assert not GatePolicy.objects.exists()


def test_who_may_write(teammate_api, read_api, contributor_api, sides):
    before, after = sides
    gate = {"candidate": after.public_id, "baseline": before.public_id}
    baseline = {"runs": before.public_id, "kind": "anchor"}
    policy = {"toml": "[gate]\n", "name": "p"}
    for path, body in (("gates", gate), ("baselines", baseline), ("policies", policy)):
        assert read_api.post(f"/api/v1/{path}", body).json()["code"] == "access.scope"
        assert teammate_api.post(f"/api/v1/{path}", body).json()["code"] == "access.role"
    assert contributor_api.post("/api/v1/gates", gate).status_code == 202
    for path, body in (("baselines", baseline), ("policies", policy)):
        assert contributor_api.post(f"/api/v1/{path}", body).json()["code"] == "access.role"


def test_who_may_read(teammate_api, narrow, anonymous_api, outsider_api, started):
    policy = Gate.objects.get().policy_row.public_id
    for path in ("gates", f"gates/{started}", "policies", f"policies/{policy}", "baselines"):
        assert teammate_api.get(f"/api/v1/{path}").status_code == 200
        assert narrow.get(f"/api/v1/{path}").json()["code"] == "access.scope"
        assert anonymous_api.get(f"/api/v1/{path}").status_code == 401
    assert outsider_api.get(f"/api/v1/policies/{policy}").status_code == 404
    assert outsider_api.delete(f"/api/v1/policies/{policy}").status_code == 404
    assert outsider_api.get("/api/v1/policies").json()["results"] == []


@pytest.mark.parametrize("path", ["gates", "policies", "baselines"])
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"candidate": NaN}'])
def test_a_body_that_is_no_object_is_refused(owner_api, path, body):
    answer = owner_api.post(f"/api/v1/{path}", body, content_type="application/json")
    assert answer.status_code in {400, 422}
    assert answer["Content-Type"] == "application/problem+json"


def test_lists_take_the_same_queries_whatever_their_length(
    owner_api, sides, team, django_assert_max_num_queries
):
    from qualityhub.gates.services import baseline_set, gate_start, policy_create

    before, after = sides
    for number in range(12):
        policy, _ = policy_create(team=team, text="[gate]\n", name=f"p{number}")
        gate_start(team=team, candidate=[after], baseline=[before], policy=policy)
        baseline_set(team=team, kind="anchor", runs=[before])
    for path in ("gates", "policies", "baselines?active=all"):
        with django_assert_max_num_queries(8):
            assert len(owner_api.get(f"/api/v1/{path}").json()["results"]) == 12
