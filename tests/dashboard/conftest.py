"""A hub with judged environments and a decided gate, made through the services."""

from __future__ import annotations

import json

import pytest


def finding(number, **fields):
    from qualityhub.engine.report import Finding

    return Finding(
        **{
            "id": f"f-{number:012d}",
            "code": "VER001",
            "rule_version": 1,
            "kind": "finding",
            "severity": "error",
            "waived": False,
            "task": "t2",
            "message": "The reference should earn 1; it earned 0.",
            "evidence": {
                "expected": "reward >= 1",
                "seen": {"outcome": "reward", "reward": 0.0, "detail": "AssertionError: wrong"},
                "answer_key": "return 41",
                "asks": [{"task": "t2", "probe": "oracle", "hash_seed": 0, "seed": 0, "repeat": 0}],
            },
            "location": "tasks.jsonl:2",
            "reproduce": f"qualityhub reproduce f-{number:012d}",
            "fingerprint": f"qh1:{number:064x}",
            "title": "Reference solution fails",
            "fix": "Repair `canonical_solution`, or the test.",
            **fields,
        }
    )


@pytest.fixture
def hostile():
    """What foreign text may hold: markup, a terminal escape, a direction override."""
    return "<script>alert(1)</script>\x1b[31m\u202egpj"


@pytest.fixture
def make_finding():
    return finding


@pytest.fixture
def inspected():
    """``inspected(version, verdict, findings=…)`` ends an inspection with such a report."""
    from django.db import transaction

    from qualityhub.engine.policy import AdmissionPolicy
    from qualityhub.engine.report import InspectionReport, NotMeasured, RuleReport, TaskReport
    from qualityhub.inspections.services import inspection_start
    from qualityhub.inspections.verdicts import inspection_finish

    def end(version, verdict="partial", *, findings=None, quarantined=("t2",), **environment):
        found = (finding(1),) if findings is None else tuple(findings)
        inspection = inspection_start(version=version, actor="owner@example.org")
        report = InspectionReport(
            environment={
                "name": version.environment.name,
                "adapter": version.adapter,
                "digest": version.digest,
                "tasks": version.task_count,
                "provisional": False,
                "provisional_reason": "",
                "family": version.family,
                "domain": version.environment.domain.slug,
                **environment,
            },
            verdict=verdict,
            policy=AdmissionPolicy().as_json(),
            findings=found,
            tasks=tuple(
                TaskReport(
                    task.task_id,
                    task.digest,
                    task.layers,
                    "quarantined" if task.task_id in quarantined else "admitted",
                )
                for task in version.tasks.order_by("position")
            ),
            not_measured=(NotMeasured("DEP002", 1, "no sandbox here", "a sandbox"),),
            rules=(
                RuleReport("VER001", "fail", "1 of 2 tasks", 4, 0.2, "Reference solution fails"),
                RuleReport("DET001", "pass", "3 runs agree: differs in less than 63 %", 6, 0.4),
                RuleReport("DEP002", "skip", "no sandbox here"),
            ),
            trials={"run": 10, "cached": 2, "seconds": 0.6},
            host={"provider": "bwrap", "python": "3.11.2", "arch": "x86_64"},
        )
        with transaction.atomic():
            inspection_finish(inspection, report, {})
        inspection.refresh_from_db()
        version.refresh_from_db()
        return inspection

    return end


@pytest.fixture
def gate_of(team):
    """``gate_of({"code": (0.9, 0.5)})`` decides a gate of domains with (before, after) pass rates."""
    from qualityhub.gates.services import (
        checkpoint_create,
        eval_run_create,
        eval_run_seal,
        gate_decide,
        gate_start,
        rollouts_ingest,
        rows_from,
    )
    from qualityhub.gates.stream import RowStream
    from qualityhub.registry.services import domain_ensure

    counter = iter(range(1, 1000))

    def decide(domains, *, tasks=60, candidate="", trace="https://traces.example.org/1"):
        number = next(counter)
        known = {slug: domain_ensure(team=team, slug=slug, actor="test").pk for slug in domains}
        runs = []
        for side, name in enumerate((f"base-{number}", candidate or f"step-{number}")):
            rows = []
            for slug, rates in domains.items():
                for task in range(tasks):
                    passed = (task * 7 + side) % tasks < rates[side] * tasks
                    rows.extend(
                        {
                            "domain": slug,
                            "task": f"task-{task}",
                            "attempt": attempt,
                            "passed": passed,
                            "output_tokens": 100 + task + 10 * side,
                            "trace_ref": trace,
                        }
                        for attempt in range(2)
                    )
            run = eval_run_create(
                checkpoint=checkpoint_create(team=team, name=name), name="nightly"
            )
            body = "".join(json.dumps(row) + "\n" for row in rows).encode()
            rollouts_ingest(run=run, stream=RowStream(rows_from([body])), domains=known)
            eval_run_seal(run=run)
            run.refresh_from_db()
            runs.append(run)
        gate, _ = gate_start(team=team, candidate=[runs[1]], baseline=[runs[0]], actor="owner")
        return gate_decide(gate.public_id)

    return decide


@pytest.fixture
def member(client, teammate):
    """A browser of somebody who may look."""
    client.force_login(teammate)
    return client


@pytest.fixture
def editor(contributor):
    """A browser of somebody who may upload and inspect."""
    from django.test import Client

    browser = Client()
    browser.force_login(contributor)
    return browser


@pytest.fixture
def stranger(outsider):
    """A browser of another team's administrator."""
    from django.test import Client

    browser = Client()
    browser.force_login(outsider)
    return browser


@pytest.fixture
def queries_of():
    """``queries_of(browser, path)`` returns how many queries a page takes."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    def count(browser, path):
        with CaptureQueriesContext(connection) as captured:
            assert browser.get(path).status_code == 200
        return len(captured)

    return count


@pytest.fixture
def text_of():
    """``text_of(response)`` returns a page, checked to hold no inline script or handler."""
    from html.parser import HTMLParser

    class Checker(HTMLParser):
        def handle_starttag(self, tag, attrs):
            names = dict(attrs)
            assert tag != "script" or names.get("src", "").startswith("/static/"), attrs
            assert not [name for name in names if name.startswith("on")], attrs
            assert not names.get("href", "").startswith("javascript"), attrs

    def text(response):
        page = response.content.decode()
        Checker().feed(page)
        return page

    return text
