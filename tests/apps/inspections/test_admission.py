from __future__ import annotations

import gzip
import json
from datetime import timedelta

import pytest
from django.utils import timezone

from qualityhub.engine.errors import ConflictError, InvalidInputError
from qualityhub.inspections.admission import admission_check
from qualityhub.inspections.manifests import manifest_file, manifest_state
from qualityhub.inspections.policies import policy_of, policy_set
from qualityhub.inspections.waivers import today_utc, waiver_grant, waiver_revoke
from qualityhub.registry.choices import TaskRole
from qualityhub.registry.services import task_roles_set

pytestmark = pytest.mark.django_db


def manifest(team, domain=None):
    _, path = manifest_file(manifest_state(team, domain))
    return json.loads(gzip.decompress(path.read_bytes()))


@pytest.fixture
def waive(environment):
    def make(code="VER001", task="T/0", days=10, **fields):
        return waiver_grant(
            environment=environment,
            code=code,
            task=task,
            reason=fields.pop("reason", "known, to be fixed"),
            until=today_utc() + timedelta(days=days),
            actor="owner@example.org",
        )

    return make


def test_manifest_hands_out_admitted_tasks_alone(upload, judge, script, team):
    script.wrong = {"T/1"}
    version = upload(3)
    inspection = judge(version)
    document = manifest(team)
    assert document["schema"] == "qualityhub.manifest/1"
    (entry,) = document["environments"]
    assert entry["digest"] == version.digest
    assert (entry["environment"], entry["domain"]) == ("sums", "code")
    assert (entry["admission"], entry["provisional"]) == ("partial", False)
    assert entry["inspection"] == inspection.public_id
    assert [task["id"] for task in entry["tasks"]] == ["T/0", "T/2"]
    assert entry["tasks"][0]["digest"] == version.tasks.get(task_id="T/0").digest


def test_manifest_never_hands_out_gate_tasks(upload, judge, team, environment):
    judge(upload(3))
    before = manifest_state(team)
    task_roles_set(
        environment, {"T/0": TaskRole.GATE, "T/1": TaskRole.BOTH}, actor="owner@example.org"
    )
    assert manifest_state(team).etag != before.etag
    tasks = manifest(team)["environments"][0]["tasks"]
    assert [(task["id"], task["role"]) for task in tasks] == [("T/1", "both"), ("T/2", "train")]


def test_newest_admitted_version_is_handed_out(upload, judge, script, team):
    first = upload(2)
    judge(first)
    script.wrong = {"T/0", "T/1"}
    judge(upload(2, shift=1))
    assert [entry["digest"] for entry in manifest(team)["environments"]] == [first.digest]
    script.wrong = set()
    third = upload(2, shift=2)
    assert manifest(team)["environments"][0]["digest"] == first.digest
    judge(third)
    assert [entry["digest"] for entry in manifest(team)["environments"]] == [third.digest]


def test_manifest_changes_its_mark_only_with_its_content(upload, judge, script, other_team, domain):
    team = domain.team
    empty = manifest_state(team)
    version = upload(2)
    assert manifest_state(team).etag == empty.etag  # nothing of it is admitted yet
    judge(version)
    admitted = manifest_state(team)
    assert admitted.etag != empty.etag
    assert manifest_state(team, domain).etag != admitted.etag
    theirs = manifest_state(other_team).etag
    judge(version, generation=1)
    assert manifest_state(team).etag == admitted.etag  # judged again, the same
    script.wrong = {"T/0"}
    judge(version, generation=2)
    assert manifest_state(team).etag != admitted.etag
    assert manifest_state(other_team).etag == theirs


def test_manifest_is_the_same_bytes_wherever_it_is_made(upload, judge, team):
    judge(upload(2))
    _, path = manifest_file(manifest_state(team))
    first = path.read_bytes()
    path.unlink()
    _, again = manifest_file(manifest_state(team))
    assert again == path
    assert again.read_bytes() == first


def test_manifest_follows_renames_and_deletions(upload, judge, team, environment):
    judge(upload(1))
    marks = [manifest_state(team).etag]
    environment.slug = "totals"
    environment.save()
    marks.append(manifest_state(team).etag)
    assert manifest(team)["environments"][0]["environment"] == "totals"
    environment.domain.slug = "codes"
    environment.domain.save()
    marks.append(manifest_state(team).etag)
    environment.description = "words alone"
    environment.versions.all().delete()
    marks.append(manifest_state(team).etag)
    assert manifest(team)["environments"] == []
    assert len(set(marks)) == 4


def test_check_answers_by_digest(upload, judge, script, other_team, environment):
    team = environment.team
    script.wrong = {"T/1"}
    version = upload(3)
    judge(version)
    task_roles_set(environment, {"T/2": TaskRole.GATE}, actor="owner@example.org")
    digests = list(version.tasks.order_by("position").values_list("digest", flat=True))
    asked = [*digests, version.digest, "qh1:" + "0" * 64]
    answers = [(item.admitted, item.reason) for item in admission_check([team.pk], asked)]
    assert answers == [
        (True, "admitted"),
        (False, "quarantined"),
        (False, "gate_task"),
        (False, "partial"),
        (False, "unknown"),
    ]
    theirs = admission_check([other_team.pk], asked)
    assert {item.reason for item in theirs} == {"unknown"}
    unjudged = upload(1, shift=7)
    (answer,) = admission_check([team.pk], [unjudged.digest])
    assert (answer.admitted, answer.reason) == (False, "not_judged")


def test_one_quarantine_outweighs_every_admission(upload, judge, script, team):
    first, second = upload(2), upload(3)
    judge(second)
    script.wrong = {"T/0"}
    judge(first, generation=1)
    digest = first.tasks.get(task_id="T/0").digest
    assert second.tasks.get(task_id="T/0").digest == digest
    (answer,) = admission_check([team.pk], [digest])
    assert (answer.admitted, answer.reason) == (False, "quarantined")


def test_waived_finding_stays_a_finding_and_admits(upload, judge, script, waive):
    script.wrong = {"T/0"}
    version = upload(2)
    judge(version)
    waiver = waive()
    again = judge(version)
    assert again.verdict == "admitted"
    (finding,) = again.report["findings"]
    assert (finding["waived"], finding["severity"]) == (True, "error")
    rule = next(rule for rule in again.report["rules"] if rule["code"] == "VER001")
    assert rule["status"] == "fail"
    assert again.finding_counts == {"waived": 1}
    waiver_revoke(waiver, actor="owner@example.org")
    assert judge(version).verdict == "partial"


def test_expired_waiver_counts_for_nothing(upload, judge, script, waive):
    script.wrong = {"T/0"}
    version = upload(2)
    waiver = waive()
    type(waiver).objects.update(until=today_utc() - timedelta(days=1))
    assert judge(version).verdict == "partial"
    renewed = waive()  # an expired one makes room
    waiver.refresh_from_db()
    assert (waiver.revoked_by, renewed.revoked_at) == ("expired", None)


def test_bad_waivers_are_refused(waive):
    waive()
    with pytest.raises(ConflictError):
        waive()
    for fields, code in (
        ({"code": "VER999"}, "rule.unknown"),
        ({"task": "T/1", "reason": "  "}, "waiver.bad_reason"),
        ({"task": "T/1", "days": -1}, "waiver.bad_expiry"),
        ({"task": "T/1", "days": 400}, "waiver.bad_expiry"),
    ):
        with pytest.raises(InvalidInputError) as caught:
            waive(**fields)
        assert caught.value.code == code


def test_policy_versions_are_kept_and_equal_content_is_no_new_one(domain, other_team):
    assert policy_of(domain).name == "default"
    first = policy_set(domain=domain, table={"effort": "quick"}, actor="a")
    same = policy_set(domain=domain, table={"effort": "quick"}, actor="b")
    second = policy_set(domain=domain, table={"allow_provisional": True}, actor="a")
    assert (first.number, same.pk, second.number) == (1, first.pk, 2)
    assert policy_of(domain).allow_provisional
    assert policy_of(domain).effort == "standard"
    with pytest.raises(InvalidInputError) as caught:
        policy_set(domain=domain, table={"severity": {"VER01": "info"}}, actor="a")
    assert caught.value.code == "rule.unknown"


def test_policy_decides_about_severity(upload, judge, script, domain):
    script.wrong = {"T/0"}
    policy_set(domain=domain, table={"severity": {"VER001": "warning"}}, actor="a")
    inspection = judge(upload(2))
    assert (inspection.verdict, inspection.decides) == ("admitted", True)
    assert inspection.finding_counts == {"warning": 1}


def test_revision_counts_one_change_once(upload, judge, team):
    from qualityhub.inspections.models import AdmissionRevision

    version = upload(3)
    judge(version)
    before = AdmissionRevision.objects.get(team=team)
    version.tasks.filter(task_id="T/0").update(admitted=True)
    assert AdmissionRevision.objects.get(team=team).revision == before.revision
    version.tasks.update(admitted=None)
    after = AdmissionRevision.objects.get(team=team)
    assert after.revision == before.revision + 1
    assert after.changed_at > before.changed_at
    assert after.changed_at <= timezone.now() + timedelta(seconds=5)
