"""The hub's inspection, with a real sandbox, against the engine's own on the same source."""

from __future__ import annotations

import json

import pytest

from qualityhub.engine.inspect import InspectOptions, inspect_source
from qualityhub.engine.policy import AdmissionPolicy
from qualityhub.inspections.bench import Bench
from qualityhub.inspections.draining import drain
from qualityhub.inspections.models import Inspection, InspectionTrial, TrialRecord
from qualityhub.inspections.services import inspection_start
from qualityhub.inspections.subjects import derive_again

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def bench():
    bench = Bench("test")
    yield bench
    bench.close()


def test_hub_and_engine_say_the_same(open_home, rows, upload, bench):
    data = rows(6, wrong=[2])
    version = upload(data)
    inspection = inspection_start(version=version, actor="owner@example.org")
    drain(bench, 60)
    inspection = Inspection.objects.get(pk=inspection.pk)
    assert (inspection.status, inspection.error_message) == ("finished", "")

    source = open_home / "source"
    source.mkdir()
    (source / "tasks.jsonl").write_bytes(data)
    alone = inspect_source(str(source), InspectOptions(AdmissionPolicy(), open_home, cache=False))
    assert inspection.verdict == alone.verdict == "partial"
    hub = {(item["fingerprint"], item["severity"]) for item in inspection.report["findings"]}
    assert hub == {(item.fingerprint, item.severity) for item in alone.findings}
    assert [row["verdict"] for row in inspection.report["tasks"]] == [
        row.verdict for row in alone.tasks
    ]
    admitted = version.tasks.order_by("position").values_list("admitted", flat=True)
    assert list(admitted) == [True, True, False, True, True, True]
    assert json.loads(json.dumps(derive_again(inspection).as_json())) == inspection.report
    # How many ran again cold depends on which ones a fork server took first.
    assert TrialRecord.objects.count() == InspectionTrial.objects.count() == inspection.trials_total
