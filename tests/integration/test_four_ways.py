"""One verdict, four ways in: command line, engine, REST and dashboard say the same of one package.

One environment per family, with a real sandbox everywhere. The command line is a process of its
own; REST is an upload, a drained queue and a report; the dashboard is read from its HTML.
"""

from __future__ import annotations

import html
import io
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

import qualityhub
from qualityhub.dashboard.reports import SHOWN_PER_RULE
from qualityhub.dashboard.states import state_of
from qualityhub.engine.environments.archives import pack_tree
from qualityhub.engine.inspect import InspectOptions, inspect_source
from qualityhub.engine.policy import AdmissionPolicy
from qualityhub.engine.reports.safe import printable
from qualityhub.inspections.bench import Bench
from qualityhub.inspections.draining import drain
from qualityhub.inspections.models import Inspection

pytestmark = pytest.mark.django_db(transaction=True)

ENVIRONMENTS = Path(qualityhub.__file__).parent / "standalone" / "demo" / "environments"
FAMILIES = {
    "function": "code/interval-kata",
    "scorer": "math/estimation",
    "episode": "3d/mesh-walk",
    "task": "terminal/rotate-backups",
}
COMPARED = ("id", "fingerprint", "code", "kind", "severity", "waived", "task", "message", "fix")
EXIT = {"admitted": 0, "partial": 1, "rejected": 1, "pending": 3}
DETAILS = re.compile(r'<details class="finding" id="([^"]+)"')
SUMMARY = re.compile(r'<span class="what">(.*?)</span>', re.DOTALL)
TASK = re.compile(
    r'<tr><th scope="row" class="wrap">(.*?)</th>.*?<td data-label="Verdict">(.*?)</td>'
)
TAG = re.compile(r"<svg.*?</svg>|<[^>]+>", re.DOTALL)


@pytest.fixture
def bench():
    bench = Bench("test")
    yield bench
    bench.close()


@pytest.fixture
def inspect_by_process(open_home):
    """``inspect_by_process(folder)`` returns exit status and document of the command line."""

    def run(folder):
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(open_home),
            "QH_HOME": str(open_home / "cli"),
            "PYTHONPATH": str(Path(qualityhub.__file__).parents[1]),
        }
        (open_home / "cli").mkdir(mode=0o755)
        done = subprocess.run(
            [sys.executable, "-m", "qualityhub", "inspect", str(folder), "--format", "json"],
            env=environ,
            cwd=open_home,
            capture_output=True,
            timeout=300,
            check=False,
        )
        assert done.stdout, done.stderr.decode()
        return done.returncode, json.loads(done.stdout)

    return run


@pytest.fixture
def inspect_by_rest(owner_api, environment, bench):
    """``inspect_by_rest(folder)`` uploads a folder, drains the queue and returns the report."""

    def run(folder):
        archive = io.BytesIO()
        pack_tree(folder, archive)
        uploaded = owner_api.post(
            f"/api/v1/environments/{environment.public_id}/versions",
            {
                "archive": SimpleUploadedFile(f"{folder.name}.tar.gz", archive.getvalue()),
                "inspect": "true",
            },
            format="multipart",
        )
        assert uploaded.status_code == 201, uploaded.content
        drain(bench, 300)
        ref = uploaded.json()["inspection"]
        inspection = Inspection.objects.get(public_id=ref)
        assert (inspection.status, inspection.error_message) == ("finished", "")
        answer = owner_api.get(f"/api/v1/inspections/{ref}/report")
        assert answer.status_code == 200
        return answer.json()

    return run


def words(markup):
    return html.unescape(TAG.sub("", markup)).strip()


def conclusions(document):
    """Return what all ways must agree on."""
    findings = [{key: finding[key] for key in COMPARED} for finding in document["findings"]]
    return {
        "verdict": document["verdict"],
        "digest": document["environment"]["digest"],
        "provisional": document["environment"]["provisional"],
        "findings": sorted(findings, key=lambda finding: finding["id"]),
        "tasks": [(row["id"], row["digest"], row["verdict"]) for row in document["tasks"]],
        "not_measured": document["not_measured"],
        "rules": {row["code"]: (row["status"], row["reason"]) for row in document["rules"]},
    }


def expected_on_page(document):
    """Return id and words of the findings the page unfolds: the first of every rule."""
    shown = defaultdict(list)
    for finding in document["findings"]:
        shown[finding["code"]].append(finding)
    return {
        finding["id"]: " ".join(
            filter(None, (finding["task"], printable(finding["message"]).replace("`", "")))
        )
        for group in shown.values()
        for finding in group[:SHOWN_PER_RULE]
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_four_ways_in_say_the_same(  # noqa: PLR0917 - fixtures come by name.
    family, open_home, inspect_by_process, inspect_by_rest, client, owner, environment
):
    folder = ENVIRONMENTS / FAMILIES[family]
    code, by_process = inspect_by_process(folder)
    alone = inspect_source(str(folder), InspectOptions(AdmissionPolicy(), open_home / "cli"))
    by_engine = json.loads(json.dumps(alone.as_json()))
    by_rest = inspect_by_rest(folder)

    assert by_process["findings"], "the chosen environment must have something to find"
    assert conclusions(by_process) == conclusions(by_engine) == conclusions(by_rest)
    errors = [row for row in by_process["findings"] if row["severity"] == "error"]
    assert code == (1 if errors else EXIT[by_process["verdict"]])

    client.force_login(owner)
    page = client.get(reverse("dashboard:environment", args=[environment.public_id]))
    assert page.status_code == 200
    text = page.content.decode()
    shown = dict(zip(DETAILS.findall(text), map(words, SUMMARY.findall(text)), strict=True))
    assert shown == expected_on_page(by_process)
    big = re.search(r'<div class="gate-line"><div>(.*?)</div>', text, re.DOTALL)
    assert words(big[1]) == state_of(by_process["verdict"], "").word
    rows = [(words(task), words(verdict)) for task, verdict in TASK.findall(text)]
    assert rows == [(row["id"], state_of(row["verdict"], "").word) for row in by_process["tasks"]]
