"""The client against the hub's own endpoints: no answer here is made up."""

from __future__ import annotations

import io
import json

import httpx
import pytest

from qualityhub.client import QualityHubClient
from qualityhub.client.transport import Transport
from qualityhub.engine import errors

SCORER = "def score(prompt, completion, answer, info=None):\n    return float(completion.strip() == answer)\n"


@pytest.fixture
def connect(make_token):
    from django.core.handlers.wsgi import WSGIHandler
    from django.core.signals import request_finished, request_started
    from django.db import close_old_connections

    app = WSGIHandler()
    # A test's connection lives as long as its transaction, not as long as a request.
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)

    def open_client(user, team, scopes=None):
        transport = Transport(
            "http://127.0.0.1",
            make_token(user, team, scopes),
            transport=httpx.WSGITransport(app),
            sleep=lambda _: None,
        )
        return QualityHubClient("http://127.0.0.1", transport=transport)

    yield open_client
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture
def hub(connect, owner, team):
    return connect(owner, team)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sums").mkdir()
    (tmp_path / "sums" / "scorer.py").write_text(SCORER)
    (tmp_path / "sums" / "dataset.jsonl").write_text(
        '{"prompt": "1+1", "answer": "2"}\n{"prompt": "1+2", "answer": "3"}\n'
    )
    return tmp_path / "sums"


pytestmark = pytest.mark.django_db


def test_the_token_says_who_it_belongs_to(hub):
    assert hub.me()["user"] == "owner@example.org"


def test_a_folder_becomes_a_version_once_and_comes_back_as_it_was(hub, folder):
    hub.domain_create("Math", slug="math")
    assert hub.domain("math")["slug"] == "math"
    environment = hub.environment_ensure("sums", "math")
    assert hub.environment_ensure("sums", "math")["id"] == environment["id"]
    version = hub.version_upload(environment["id"], folder)
    assert (version["adapter"], version["tasks"]) == ("scorer", 2)
    assert hub.version_upload(environment["id"], folder)["id"] == version["id"]
    assert hub.version(version["id"])["digest"] == version["digest"]
    archive = io.BytesIO()
    hub.version_archive(version["id"], archive)
    assert archive.getvalue()[:2] == b"\x1f\x8b"


def test_an_upload_has_the_digest_that_the_files_have_here(hub, folder):
    from qualityhub.engine.environments.reader import read_environment

    hub.domain_create("Math", slug="math")
    version = hub.version_upload(hub.environment_ensure("sums", "math")["id"], folder)
    assert version["digest"] == read_environment(str(folder)).digest


def test_one_file_can_be_uploaded_by_its_name(hub, tmp_path):
    hub.domain_create("Code", slug="code")
    environment = hub.environment_ensure("he", "code")
    row = {
        "task_id": "a/0",
        "prompt": "def one():\n",
        "entry_point": "one",
        "canonical_solution": "    return 1\n",
        "test": "def check(candidate):\n    assert candidate() == 1\n",
    }
    rows = tmp_path / "he.jsonl"
    rows.write_text(json.dumps(row) + "\n")
    (tmp_path / "other.py").write_text("neighbour = True\n")
    version = hub.version_upload(environment["id"], rows, entry="he.jsonl")
    assert (version["adapter"], version["tasks"]) == ("humaneval", 1)


def test_a_class_in_a_file_can_be_uploaded_with_its_neighbours(hub, tmp_path):
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "world.py").write_text(
        "class World:\n    def reset(self, seed=None):\n        return 0, {}\n    def step(self, action):\n        return 0, 0.0, True, False, {}\n"
    )
    (tmp_path / "envs" / "helper.py").write_text("x = 1\n")
    hub.domain_create("Control", slug="control")
    environment = hub.environment_ensure("world", "control")
    version = hub.version_upload(environment["id"], tmp_path / "envs", entry="world.py:World")
    assert version["family"] == "episode"


def test_a_reference_needs_no_files(hub):
    hub.domain_create("Control", slug="control")
    environment = hub.environment_ensure("cart", "control")
    version = hub.version_reference(environment["id"], "gymnasium:CartPole-v1")
    assert (version["source"], version["archive"]) == ("gymnasium:CartPole-v1", None)


def test_an_inspection_starts_as_a_job_of_its_own(hub, folder):
    hub.domain_create("Math", slug="math")
    version = hub.version_upload(hub.environment_ensure("sums", "math")["id"], folder)
    job = hub.version_inspect(version["id"], effort="quick", trigger="ci")
    assert job.object.startswith("insp_")
    assert not job.ended
    assert hub.job(job.id).id == job.id
    assert hub.inspection(job.object)["version"] == version["id"]
    assert [row["id"] for row in hub.inspections(version=version["id"])] == [job.object]
    with pytest.raises(errors.ConflictError) as error:
        hub.inspection_report(job.object)
    assert error.value.code == "inspection.no_report"
    assert list(hub.findings()) == []


def test_a_trial_and_what_it_wrote_are_read_and_a_stranger_finds_none(
    hub, connect, request, version
):
    from qualityhub.inspections.services import inspection_start

    inspection = inspection_start(version=version, actor="owner@example.org")
    result = request.getfixturevalue("make_trial")(inspection, {"stdout": b"wrote\xff"})
    assert hub.trial(result.key)["inspections"] == [inspection.public_id]
    [part] = hub.trial_evidence(result.key)["parts"]
    assert (part["name"], part["head"]) == ("stdout", "wrote\\xff")
    outsider, team = (request.getfixturevalue(name) for name in ("outsider", "other_team"))
    with pytest.raises(errors.NotFoundError) as caught:
        connect(outsider, team).trial_evidence(result.key)
    assert caught.value.code == "trial.not_found"


def test_the_manifest_and_questions_by_digest_answer(hub):
    manifest = hub.admission_manifest()
    assert manifest.document["environments"] == []
    assert hub.admission_manifest(etag=manifest.etag).document is None
    assert hub.admission_check(["qh1:none"])["qh1:none"]["admitted"] is False


def test_results_travel_and_a_gate_starts(hub, tmp_path):
    hub.domain_create("Code", slug="code")
    runs = []
    for name in ("base", "candidate"):
        file = tmp_path / f"{name}.csv"
        file.write_text(
            "domain,task,attempt,reward\n"
            + "".join(f"code,t{task},0,{task % 2}\n" for task in range(40))
        )
        run = hub.eval_run_create(hub.checkpoint_create(name)["id"], "nightly")
        total = hub.rollouts_push(run["id"], [file])
        assert (total.received, total.inserted, total.conflicts) == (40, 40, 0)
        again = hub.rollouts_push(run["id"], [file])
        assert again.received == 40
        assert hub.eval_run(run["id"])["rows"] == 40
        hub.eval_run_seal(run["id"])
        runs.append(run["id"])
    started = hub.gate_create([runs[1]], [runs[0]])
    gate = hub.gate(started["gate"]["id"])
    assert gate["candidate_runs"] == [runs[1]]
    with pytest.raises(errors.ConflictError):
        hub.gate_report(gate["id"])


def test_what_a_stranger_must_not_know_is_not_found(hub, connect, outsider, other_team):
    hub.domain_create("Code", slug="code")
    with pytest.raises(errors.NotFoundError) as error:
        connect(outsider, other_team).domain("code")
    assert error.value.code == "domain.not_found"


def test_a_refusal_carries_the_hubs_code_and_names_the_member(hub, connect, owner, team):
    with pytest.raises(errors.ForbiddenError):
        connect(owner, team, ["gates:read"]).domain_create("x")
    with pytest.raises(errors.InvalidInputError) as error:
        hub.environment_create("x" * 500, "code")
    assert "name" in error.value.message


def test_many_pages_are_one_list(hub):
    for number in range(60):
        hub.domain_create(f"D {number}", slug=f"d{number}")
    assert len({row["slug"] for row in hub.domains()}) == 60
