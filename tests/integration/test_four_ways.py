"""One verdict, whichever way in: the command line, REST and the dashboard on the same files."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from html import unescape
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from qualityhub.engine.environments.archives import pack_tree
from qualityhub.inspections.bench import Bench
from qualityhub.inspections.draining import drain

pytestmark = pytest.mark.django_db(transaction=True)
ROOT = Path(__file__).parents[2]
DEMO = ROOT / "qualityhub/standalone/demo/environments"
# What the demo's domains allow: rehearsed images may admit.
POLICY = {"allow_provisional": True}
SHOWN = re.compile(r'<details class="finding" id="([^"]+)"')
TAGS = re.compile(r"<[^>]+>")
SAID = {"admitted": "admitted", "partial": "partly admitted", "rejected": "rejected"}


@pytest.fixture
def bench():
    bench = Bench("test")
    yield bench
    bench.close()


@pytest.fixture
def by_command(open_home):
    """``by_command(folder, "math")`` returns the document a process of its own prints."""
    policy = open_home / "policy.toml"
    policy.write_text("[admission]\nallow_provisional = true\n")

    def inspect(folder, domain):
        words = ("inspect", str(folder), "--domain", domain, "--policy", str(policy))
        done = subprocess.run(
            [sys.executable, "-m", "qualityhub", *words, "--format", "json", "--no-cache"],
            cwd=open_home,
            env={"PATH": "/usr/bin:/bin", "HOME": str(open_home), "PYTHONPATH": str(ROOT)}
            | {"QH_HOME": str(open_home / "alone")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in {0, 1}, done.stderr
        return json.loads(done.stdout)

    return inspect


@pytest.fixture
def by_rest(owner_api, bench):
    """``by_rest(folder, "math")`` uploads, lets a worker's bench do it, and returns id and report."""

    def inspect(folder, domain):
        assert owner_api.post("/api/v1/domains", {"name": domain}).status_code == 201
        policy = owner_api.put(f"/api/v1/domains/{domain}/admission-policy", POLICY, format="json")
        assert policy.status_code == 200, policy.content
        made = owner_api.post("/api/v1/environments", {"domain": domain, "name": folder.name})
        packed = io.BytesIO()
        pack_tree(folder, packed)
        sent = owner_api.post(
            f"/api/v1/environments/{made.json()['id']}/versions",
            {"archive": SimpleUploadedFile("env.tar.gz", packed.getvalue()), "inspect": "true"},
            format="multipart",
        )
        assert sent.status_code == 201, sent.content
        drain(bench, 120)
        report = owner_api.get(f"/api/v1/inspections/{sent.json()['inspection']}/report")
        assert report.status_code == 200, report.content
        return made.json()["id"], report.json()

    return inspect


def judgement(report):
    """Return all of a report that must not depend on who asked."""
    findings = [
        (row["fingerprint"], row["code"], row["kind"], row["severity"], row["task"], row["message"])
        for row in report["findings"]
    ]
    return {
        "digest": report["environment"]["digest"],
        "verdict": report["verdict"],
        "findings": sorted(findings, key=str),
        "tasks": [(row["id"], row["digest"], row["verdict"]) for row in report["tasks"]],
        "rules": {row["code"]: row["status"] for row in report["rules"]},
        "not_measured": sorted(row["code"] for row in report["not_measured"]),
    }


@pytest.fixture(
    params=[
        ("code/interval-kata", "partial", {"VER001", "VER002"}),
        ("code/string-kata", "admitted", set()),
        ("math/estimation", "rejected", {"VER004"}),
        ("3d/mesh-walk", "rejected", {"DET002"}),
        ("terminal/rotate-backups", "rejected", {"VER002"}),
    ],
    ids=lambda param: param[0],
)
def case(request, open_home):
    """A demo environment in a folder of its own, its domain, and what is known of it."""
    place, verdict, codes = request.param
    domain, name = place.split("/")
    folder = open_home / "source" / name
    shutil.copytree(DEMO / place, folder)
    return folder, domain, verdict, codes


def test_every_way_in_says_the_same(by_command, by_rest, client, owner, case):
    folder, domain, verdict, codes = case
    alone = by_command(folder, domain)
    environment, report = by_rest(folder, domain)
    assert judgement(report) == judgement(alone)
    assert report["verdict"] == verdict
    errors = {row["code"] for row in report["findings"] if row["severity"] == "error"}
    assert errors == codes

    client.force_login(owner)
    page = client.get(f"/environments/{environment}/")
    assert page.status_code == 200
    html = page.content.decode()
    # Ten findings of a rule unfold on the page; the rest are a click away.
    most = Counter(row["code"] for row in report["findings"])
    assert max(most.values(), default=0) <= 10
    assert sorted(SHOWN.findall(html)) == sorted(row["id"] for row in report["findings"])
    words = " ".join(unescape(TAGS.sub(" ", html)).split())
    assert SAID[verdict] in words.lower()
    for row in report["findings"]:
        message = re.sub("[^A-Za-z]+", " ", row["message"]).strip()
        assert message in re.sub("[^A-Za-z]+", " ", words)
