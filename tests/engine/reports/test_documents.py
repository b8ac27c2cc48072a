from __future__ import annotations

import json
import re
from xml.etree import ElementTree as ET

import pytest

from qualityhub.engine.reports.json import inspection_json
from qualityhub.engine.reports.junit import inspection_junit
from qualityhub.engine.reports.markdown import inspection_markdown
from qualityhub.engine.reports.sarif import Place, inspection_sarif, split_location
from qualityhub.engine.rules.catalogue import CATALOGUE


def sarif(documents, **given):
    return json.loads(inspection_sarif(documents, catalogue=CATALOGUE, **given))


# JSON


def test_one_report_is_written_as_it_is_and_several_as_one_document(document):
    assert json.loads(inspection_json([document])) == document
    many = json.loads(inspection_json([document, document]))
    assert many["schema"] == "qualityhub.inspections/1"
    assert many["inspections"] == [document, document]
    assert json.loads(inspection_json([document], several=True))["inspections"] == [document]


def test_what_a_baseline_knew_is_named_beside_the_findings(document):
    known = {"demo": frozenset({"fp-VER001-t1", "gone"})}
    assert json.loads(inspection_json([document], known=known))["known"] == ["fp-VER001-t1"]


def test_unchanged_sources_are_named_in_an_empty_document():
    assert json.loads(inspection_json([], unchanged=["envs/demo"])) == {
        "schema": "qualityhub.inspections/1",
        "inspections": [],
        "unchanged": ["envs/demo"],
    }


def test_json_is_ascii_so_that_it_cannot_steer_a_terminal(hostile_document):
    assert inspection_json([hostile_document]).isascii()


# SARIF


def check_sarif(log):
    """The rules of SARIF 2.1.0 that its schema states for the parts written here."""
    assert set(log) == {"$schema", "version", "runs"}
    assert log["version"] == "2.1.0"
    for run in log["runs"]:
        driver = run["tool"]["driver"]
        assert driver["name"]
        ids = [rule["id"] for rule in driver["rules"]]
        assert len(ids) == len(set(ids))
        for rule in driver["rules"]:
            assert set(rule) <= {
                "id",
                "name",
                "shortDescription",
                "fullDescription",
                "help",
                "defaultConfiguration",
                "properties",
            }
            assert rule["shortDescription"]["text"]
            if "defaultConfiguration" in rule:
                assert rule["defaultConfiguration"]["level"] in {"none", "note", "warning", "error"}
            if "help" in rule:
                assert rule["help"]["text"]
                assert rule["help"]["markdown"]
        assert run["columnKind"] in {"utf16CodeUnits", "unicodeCodePoints"}
        assert re.fullmatch(r"[^\s]*/", run["automationDetails"]["id"])
        for invocation in run["invocations"]:
            assert isinstance(invocation["executionSuccessful"], bool)
            for note in invocation["toolExecutionNotifications"]:
                assert note["message"]["text"]
                assert note["level"] in {"none", "note", "warning", "error"}
        for result in run["results"]:
            assert set(result) <= {
                "ruleId",
                "ruleIndex",
                "level",
                "kind",
                "message",
                "locations",
                "partialFingerprints",
                "properties",
                "baselineState",
                "suppressions",
            }
            assert ids[result["ruleIndex"]] == result["ruleId"]
            assert result["level"] in {"none", "note", "warning", "error"}
            assert result["message"]["text"]
            assert all(isinstance(value, str) for value in result["partialFingerprints"].values())
            assert result.get("baselineState", "new") in {"new", "unchanged", "updated", "absent"}
            for suppression in result.get("suppressions", []):
                assert suppression["kind"] in {"inSource", "external"}
            for location in result["locations"]:
                artifact = location["physicalLocation"]["artifactLocation"]
                assert re.fullmatch(r"[A-Za-z0-9._~!$&'()*+,;=@%/-]+", artifact["uri"])
                assert not artifact["uri"].startswith("/")
                assert ".." not in artifact["uri"].split("/")
                assert artifact["uriBaseId"] in run["originalUriBaseIds"]
                assert location["physicalLocation"].get("region", {}).get("startLine", 1) >= 1


def test_sarif_holds_rules_with_help_results_and_fingerprints(document):
    log = sarif([document, document], places={"demo": Place("envs/my demo", "data.jsonl")})
    check_sarif(log)
    run = log["runs"][0]
    rules = {rule["id"]: rule for rule in run["tool"]["driver"]["rules"]}
    assert "## Why it matters" in rules["VER001"]["help"]["markdown"]
    results = run["results"]
    assert len(results) == 9
    assert results[0]["partialFingerprints"] == {"qualityhub/v1": "fp-VER001-t1"}
    assert results[0]["level"] == "error"
    assert results[7]["level"] == "warning"
    assert results[7]["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "envs/my%20demo/scorer.py", "uriBaseId": "SRCROOT"},
        "region": {"startLine": 12},
    }
    physical = results[0]["locations"][0]["physicalLocation"]
    assert physical == {
        "artifactLocation": {"uri": "envs/my%20demo/data.jsonl", "uriBaseId": "SRCROOT"}
    }
    assert results[8]["level"] == "note"
    assert len(run["invocations"][0]["toolExecutionNotifications"]) == 1


def test_sarif_says_what_is_new_and_what_is_waived(document):
    document["findings"][1]["waived"] = True
    results = sarif([document], known={"demo": frozenset({"fp-VER001-t1"})})["runs"][0]["results"]
    assert [row["baselineState"] for row in results[:2]] == ["unchanged", "new"]
    assert "suppressions" not in results[0]
    assert results[1]["suppressions"][0]["kind"] == "external"


def test_sarif_of_a_hostile_report_stays_valid_and_inside_the_package(hostile_document):
    log = sarif([hostile_document])
    check_sarif(log)
    assert "\x1b" not in json.dumps(log["runs"][0]["results"][0]["message"], ensure_ascii=False)


def test_a_broken_rule_makes_the_execution_unsuccessful(document):
    document["rules"][0] |= {"status": "error", "reason": "our sandbox died"}
    invocation = sarif([document])["runs"][0]["invocations"][0]
    assert invocation["executionSuccessful"] is False


@pytest.mark.parametrize(
    ("location", "parts"),
    [
        ("a/b.py:3", ("a/b.py", 3)),
        ("a.py", ("a.py", 0)),
        ("../x.py:3", ("", 0)),
        ("/etc/x:1", ("", 0)),
        ("", ("", 0)),
        ("a:b.py", ("a:b.py", 0)),
        ("..\\x:1", ("", 0)),
    ],
)
def test_locations_name_package_files_only(location, parts):
    assert split_location(location) == parts


# JUnit


def test_junit_has_a_case_per_rule_and_task(document):
    suites = ET.fromstring(inspection_junit([document]).encode())
    (suite,) = suites
    assert suite.get("name") == "demo"
    names = [case.get("name") for case in suite.findall("testcase")]
    assert len(names) == len(set(names))
    failures = [
        case.get("name") for case in suite.findall("testcase") if case.find("failure") is not None
    ]
    assert failures == [f"VER001 t{index}" for index in range(1, 8)]
    assert "DET001 t8" in names
    skipped = [
        case.get("name") for case in suite.findall("testcase") if case.find("skipped") is not None
    ]
    assert skipped == ["DET003 whole environment"]
    assert suites.get("tests") == str(len(names))
    assert (suites.get("failures"), suites.get("errors"), suites.get("skipped")) == ("7", "0", "1")


def test_junit_passes_no_task_of_a_rule_that_measured_only_some(document):
    document["not_measured"].append(
        {"code": "DET001", "tasks": 3, "reason": "budget", "would_need": ""}
    )
    suite = ET.fromstring(inspection_junit([document]).encode())[0]
    names = [case.get("name") for case in suite.findall("testcase") if "DET001" in case.get("name")]
    assert names == ["DET001 whole environment"]


def test_junit_skips_what_is_known_or_waived_and_errs_where_we_broke(document):
    document["findings"][1]["waived"] = True
    document["rules"][3] |= {"status": "error", "reason": "store is full"}
    suites = ET.fromstring(
        inspection_junit([document], known={"demo": frozenset({"fp-VER001-t1"})}).encode()
    )
    assert (suites.get("failures"), suites.get("errors"), suites.get("skipped")) == ("5", "1", "3")
    (error,) = suites.findall("testsuite/testcase/error")
    assert error.get("message") == "store is full"


def test_junit_of_a_hostile_report_is_well_formed(hostile_document):
    suites = ET.fromstring(inspection_junit([hostile_document]).encode())
    assert "\\x1b[31m" in suites[0].get("name")


# Markdown


def test_markdown_has_verdict_table_evidence_and_timing(document):
    text = inspection_markdown([document], unchanged=["other"])
    assert "### `demo`: partly admitted" in text
    assert "| error | **VER001** Title of VER001 | `t1`, `t2`" in text
    assert "- expected: `1.0`" in text
    assert "- seen: `reward 0.0`" in text
    assert "Unchanged, not inspected: `other`" in text
    assert "- DET001: 0 of 300 runs per task differed" in text


def test_markdown_lets_no_markup_link_or_mention_through(hostile_document):
    text = inspection_markdown([hostile_document])
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    assert "<script" not in outside
    assert "https://" not in outside
    assert "@all" not in outside
    assert "\x1b" not in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 5 for row in rows)


# All that leave the hub


@pytest.mark.parametrize(
    "render",
    [
        lambda documents: inspection_sarif(documents, catalogue=CATALOGUE),
        inspection_junit,
        inspection_markdown,
    ],
)
def test_reports_that_leave_the_hub_carry_no_answer_keys_or_outputs(render, document, secret):
    text = render([document])
    assert secret not in text
    assert "ValueError: bad" not in text
    assert "VER003" in text
