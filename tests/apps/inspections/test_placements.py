"""Where a version may run, corrected by a later upload and found out for rows of before."""

from __future__ import annotations

import io
import tarfile

import pytest

from qualityhub.inspections import planning, workers
from qualityhub.inspections.arrivals import engine_arrived
from qualityhub.inspections.choices import BatchKind
from qualityhub.inspections.models import Batch, Inspection, Need
from qualityhub.inspections.needs import Needs, Offer
from qualityhub.registry.models import EnvironmentVersion
from qualityhub.registry.packages import version_environment
from qualityhub.registry.placements import placement_known
from qualityhub.registry.services import version_register

pytestmark = pytest.mark.django_db
ROW = (
    '{"task_id": "T/1", "prompt": "def f(x):\\n", "entry_point": "f", '
    '"canonical_solution": "    return x\\n", "test": "def check(f):\\n    assert f(1) == 1\\n"}\n'
)


@pytest.fixture
def labelled(environment):
    """``labelled(zone="b")`` uploads the same package with such labels."""

    def make(**labels):
        table = "".join(f'{name} = "{value}"\n' for name, value in labels.items())
        files = {"tasks.jsonl": ROW, "qualityhub.toml": f"[environment.labels]\n{table}"}
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:gz") as archive:
            for name, text in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(text)
                archive.addfile(info, io.BytesIO(text.encode()))
        data.seek(0)
        return version_register(
            environment=environment, actor="o@example.org", archive=data, filename="t.tar.gz"
        )

    return make


def needs_of(batch):
    return Need.objects.get(pk=batch.needs).document if batch.needs else {}


def test_labels_are_corrected_by_a_second_upload_and_the_queue_follows(labelled, start):
    first = labelled(zone="wrong")
    inspection = start(first.version)
    Inspection.objects.update(refused={"gone": "why"})
    second = labelled(zone="b")
    assert (second.created, second.version.pk) == (False, first.version.pk)
    version = EnvironmentVersion.objects.get()
    assert version.placement == {"labels": {"zone": "b"}}
    assert version_environment(version).entry["labels"] == {"zone": "b"}
    assert needs_of(inspection.batches.get()) == {"labels": {"zone": "b"}, "without": ["gone"]}
    labelled()
    version = EnvironmentVersion.objects.get()
    assert (version.placement, version.placed) == ({}, True)
    assert not version_environment(version).entry["labels"]
    assert needs_of(inspection.batches.get()) == {"without": ["gone"]}


def test_trials_that_wait_follow_too_and_what_is_in_hand_does_not(labelled, start):
    inspection = start(labelled(zone="a").version)
    inspection.batches.all().delete()
    zone = Needs(labels=(("zone", "a"),), cpus=2)
    for ordinal, needs in enumerate((zone, Needs(cpus=2), Needs())):
        Batch.objects.create(
            inspection=inspection,
            domain_id=inspection.domain_id,
            priority=0,
            kind=BatchKind.TRIALS,
            round=1,
            ordinal=ordinal,
            needs=planning.need_key(needs),
        )
    Batch.objects.filter(ordinal=1).update(status="done")
    labelled(zone="b")
    assert [needs_of(batch) for batch in inspection.batches.order_by("ordinal")] == [
        {"cpus": 2, "labels": {"zone": "b"}},
        {"cpus": 2},
        {"labels": {"zone": "b"}},
    ]


def test_same_labels_again_change_nothing(labelled):
    before = labelled(zone="a").version.parsed_sha256
    labelled(zone="a")
    assert EnvironmentVersion.objects.get().parsed_sha256 == before


def test_bench_reads_corrected_labels(labelled, bench):
    version = labelled(zone="a").version
    assert bench._environment(version).entry["labels"] == {"zone": "a"}
    version = labelled(zone="b").version
    assert bench._environment(version).entry["labels"] == {"zone": "b"}


def test_version_of_before_is_placed_when_it_is_first_used(labelled):
    labelled(zone="a")
    EnvironmentVersion.objects.update(placement={}, placed=False)
    version = EnvironmentVersion.objects.get()
    assert planning.prepare_needs(version) == Needs(labels=(("zone", "a"),))
    version = EnvironmentVersion.objects.get()
    assert (version.placement, version.placed) == ({"labels": {"zone": "a"}}, True)


def test_version_that_asks_nothing_is_read_once(labelled, monkeypatch):
    labelled()
    EnvironmentVersion.objects.update(placed=False)
    assert placement_known(EnvironmentVersion.objects.get()) == {}
    monkeypatch.setattr("qualityhub.registry.placements._parsed", None)
    assert placement_known(EnvironmentVersion.objects.get()) == {}


def test_version_whose_files_are_gone_asks_nothing_and_is_looked_at_again(labelled):
    labelled(zone="a")
    EnvironmentVersion.objects.update(placement={}, placed=False, parsed_sha256="0" * 64)
    assert placement_known(EnvironmentVersion.objects.get()) == {}
    assert not EnvironmentVersion.objects.get().placed


def test_pending_version_of_before_is_taken_up_for_an_engine(labelled, judge, monkeypatch):
    first = judge(labelled().version)
    Inspection.objects.filter(pk=first.pk).update(verdict="pending")
    EnvironmentVersion.objects.update(placed=False)
    monkeypatch.setattr(
        "qualityhub.registry.placements.placement_of", lambda parsed: {"image": True}
    )
    workers.worker_beat("engine", Offer("e", engine=True), 1)
    assert engine_arrived() == 1
    assert EnvironmentVersion.objects.get().placement == {"image": True}
