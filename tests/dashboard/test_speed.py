"""Pages of a large hub: 300 domains, 150,000 tasks, a gate over all domains."""

from __future__ import annotations

import sys
import time

import pytest

pytestmark = [pytest.mark.long, pytest.mark.django_db]
DOMAINS, TASKS, REQUESTS = 300, 250, 20
MOST_QUERIES, MOST_SECONDS = 15, 0.2


@pytest.fixture
def large(team, version, make_finding, inspected, gate_of):
    """Two environments per domain; all share the shape of one that was really judged."""
    from qualityhub.inspections.models import Inspection
    from qualityhub.platform.jobs import Job
    from qualityhub.registry.models import Domain, Environment, EnvironmentVersion, Task

    inspection = Inspection.objects.get(pk=inspected(version).pk)
    domains = Domain.objects.bulk_create(
        Domain(team=team, slug=f"d{number:03}", name=f"Domain {number}")
        for number in range(DOMAINS)
    )
    environments = Environment.objects.bulk_create(
        Environment(team=team, domain=domain, slug=f"e{number}", name=f"Environment {number}")
        for domain in domains
        for number in range(2)
    )
    versions = EnvironmentVersion.objects.bulk_create(
        EnvironmentVersion(
            environment=environment,
            digest=f"qh1:{number:064x}",
            adapter="scorer",
            family="scorer",
            task_count=TASKS,
            source_kind="reference",
            source="x",
            admission="partial",
        )
        for number, environment in enumerate(environments)
    )
    Task.objects.bulk_create(
        (
            Task(
                version=row,
                task_id=f"t{position}",
                position=position,
                digest=f"qh1:{row.pk}-{position}",
                layers={},
                admitted=position % 5 > 0,
            )
            for row in versions
            for position in range(TASKS)
        ),
        batch_size=5000,
    )
    jobs = Job.objects.bulk_create(
        Job(team=team, kind="inspection", status="succeeded", finished_at=inspection.finished_at)
        for _ in versions
    )
    fields = {
        field.attname: getattr(inspection, field.attname)
        for field in Inspection._meta.fields
        if field.name not in {"id", "public_id", "version", "domain", "job", "task_counts"}
    }
    Inspection.objects.bulk_create(
        Inspection(
            version=row,
            domain=row.environment.domain,
            job=job,
            task_counts={"admitted": 200, "quarantined": 50},
            **fields,
        )
        for row, job in zip(versions, jobs, strict=True)
    )
    found = [make_finding(number, task=f"t{number}") for number in range(1000)]
    inspected(versions[0], findings=found)
    gate = gate_of({domain.slug: (0.5, 0.5) for domain in domains}, tasks=20)
    return {
        "overview": "/",
        "domain": "/domains/d000/",
        "environment": f"/environments/{environments[0].public_id}/",
        "inspections": "/inspections/",
        "gates": "/gates/",
        "gate": f"/gates/{gate.public_id}/",
        "figure": f"/gates/{gate.public_id}/figure.json",
        "rule": "/rules/VER001/",
        "checkpoints": "/checkpoints/",
    }


def test_pages_of_a_large_hub_are_fast(member, large, queries_of, capsys):
    slow = {}
    for name, path in large.items():
        member.get(path)
        assert queries_of(member, path) <= MOST_QUERIES, name
        taken = []
        for _ in range(REQUESTS):
            start = time.perf_counter()
            size = len(member.get(path).content)
            taken.append(time.perf_counter() - start)
        p95 = sorted(taken)[int(0.95 * REQUESTS) - 1]
        with capsys.disabled():
            sys.stderr.write(f"{name:12} p95 {1000 * p95:6.1f} ms  {size / 1024:7.1f} KiB\n")
        if p95 > MOST_SECONDS:
            slow[name] = p95
    assert slow == {}
