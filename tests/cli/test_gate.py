from __future__ import annotations

import json
import re
from xml.etree import ElementTree as ET

import pytest

from qualityhub.engine.reports.gate_page import script_json

HOSTILE = "</script><img src=x onerror=alert(1)>|`@all"


TASKS = 600  # Fewer cannot certify the default margin of 2 points.


def write(path, passed, domain="code"):
    """600 tasks with 4 attempts each; ``passed(task, attempt)`` says which succeed."""
    rows = (
        {
            "domain": domain,
            "task": f"t{task}",
            "task_digest": f"d{task}",
            "attempt": attempt,
            "passed": passed(task, attempt),
        }
        for task in range(TASKS)
        for attempt in range(4)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def files(tmp_path):
    return {
        "base": write(tmp_path / "base.ndjson", lambda task, attempt: (task + attempt) % 4 != 0),
        "same": write(tmp_path / "same.ndjson", lambda task, attempt: (task + attempt) % 4 != 0),
        "worse": write(
            tmp_path / "worse.ndjson", lambda task, attempt: (task * 7 + attempt) % 3 == 0
        ),
    }


def test_an_equal_checkpoint_is_promoted_and_a_worse_one_blocked(call, files):
    same = call("gate", files["same"], "--baseline", files["base"], "--format", "json")
    assert (same.code, same.json["verdict"]) == (0, "promote")
    assert same.err == ""
    worse = call("gate", files["worse"], "--baseline", files["base"], "--format", "json")
    assert (worse.code, worse.json["verdict"]) == (1, "block")
    assert worse.json["schema"] == "qualityhub.gate/1"


def test_every_format_tells_the_same_verdict(call, files):
    args = ("gate", files["worse"], "--baseline", files["base"], "--format")
    assert "BLOCK" in call(*args, "text").out
    comment = call(*args, "markdown").out
    assert "### Gate: block" in comment
    assert "| `code` | block |" in comment
    suites = ET.fromstring(call(*args, "junit").out.encode())
    assert [
        case.get("name") for case in suites.iter("testcase") if case.find("failure") is not None
    ] == ["code", "whole checkpoint"]
    assert suites.get("failures") == "2"
    page = call(*args, "html").out
    assert "<h1>Gate: block</h1>" in page
    assert '<th scope="row">code</th><td>block</td>' in page


def test_the_page_needs_no_network_and_holds_the_figure(call, files, tmp_path):
    output = tmp_path / "gate.html"
    call(
        "gate", files["worse"], "--baseline", files["base"], "--format", "html", "--output", output
    )
    page = output.read_text()
    assert len(page) > 1_000_000
    assert not re.search(r"<(script|link|img)[^>]*\s(src|href)=", page.replace(HOSTILE, ""))
    assert "default-src 'none'" in page
    assert "Plotly.newPlot('figure'" in page


def test_domain_names_cannot_break_out_of_any_format(call, tmp_path):
    base = write(tmp_path / "b.ndjson", lambda task, attempt: True, HOSTILE)
    worse = write(tmp_path / "w.ndjson", lambda task, attempt: False, HOSTILE)
    args = ("gate", worse, "--baseline", base, "--format")
    page = call(*args, "html").out
    assert "<img src=x" not in page
    comment = call(*args, "markdown").out
    row = next(line for line in comment.splitlines() if line.startswith("| ``"))
    assert len(re.findall(r"(?<!\\)\|", row)) == 9
    assert ET.fromstring(call(*args, "junit").out.encode()) is not None


def test_json_in_a_script_cannot_end_it():
    assert "</" not in script_json({"x": HOSTILE})
    assert json.loads(script_json({"x": HOSTILE})) == {"x": HOSTILE}


def test_an_unusable_file_is_named_with_its_line(call, files, tmp_path):
    broken = tmp_path / "broken.ndjson"
    broken.write_text('{"task":"a","attempt":0,"reward":1}\n{"task":\n')
    result = call("gate", broken, "--baseline", files["base"])
    assert result.code == 2
    assert "broken.ndjson:2" in result.err
    assert result.out == ""


def test_a_baseline_is_required_and_must_exist(call, files):
    assert call("gate", files["same"]).code == 2
    assert call("gate", files["same"], "--baseline", "/none").code == 2


def test_nothing_in_common_is_incomparable(call, tmp_path):
    one = write(tmp_path / "one.ndjson", lambda task, attempt: True, "one")
    two = write(tmp_path / "two.ndjson", lambda task, attempt: True, "two")
    assert call("gate", one, "--baseline", two).code == 4
