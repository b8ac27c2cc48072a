"""JUnit XML: one suite per environment, one test case per rule and task. Without answer keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

# Only written with: no foreign XML is parsed here.
from xml.etree import ElementTree as ET

from qualityhub.engine.reports.reading import evidence_lines
from qualityhub.engine.reports.safe import public_evidence, xml_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qualityhub.engine.reports.reading import Document

WHOLE = "whole environment"
MANY = 20_000
"""Above so many passing cases a rule gets one case that counts them: viewers choke otherwise."""


def inspection_junit(
    documents: Sequence[Document], *, known: Mapping[str, frozenset[str]] | None = None
) -> str:
    """Render reports as JUnit XML.

    Errors fail; warnings, notes and leads pass with their text as output; what was waived, known to
    the baseline, skipped or not measured is ``skipped``; a rule that broke is ``error``.

    Args:
        documents: Reports in the order of their sources.
        known: Fingerprints that a baseline already had, by environment name.
    """
    suites = ET.Element("testsuites", name="qualityhub")
    for document in documents:
        mine = (known or {}).get(document["environment"]["name"], frozenset())
        _suite(suites, document, mine)
    for name in ("tests", "failures", "errors", "skipped"):
        suites.set(name, str(sum(int(suite.get(name, "0")) for suite in suites)))
    ET.indent(suites)
    out = BytesIO()
    ET.ElementTree(suites).write(out, encoding="utf-8", xml_declaration=True)
    return out.getvalue().decode() + "\n"


@dataclass(frozen=True, slots=True)
class _Place:
    suite: ET.Element
    name: str
    tasks: list[str]
    partly: Mapping[str, Mapping[str, Any]]

    def case(self, code: str, task: str | None) -> ET.Element:
        shown = WHOLE if task is None else xml_text(task, 300)
        return ET.SubElement(
            self.suite,
            "testcase",
            classname=f"{self.name}.{code}",
            name=f"{code} {shown}",
            time="0",
        )


def _suite(suites: ET.Element, document: Document, known: frozenset[str]) -> None:
    environment = document["environment"]
    name = xml_text(environment["name"], 200)
    suite = ET.SubElement(suites, "testsuite", name=name)
    properties = ET.SubElement(suite, "properties")
    for key in ("adapter", "digest", "provisional"):
        ET.SubElement(properties, "property", name=key, value=xml_text(environment.get(key, "")))
    ET.SubElement(properties, "property", name="verdict", value=str(document["verdict"]))
    by_rule: dict[str, dict[str | None, list[Mapping[str, Any]]]] = {}
    for finding in document["findings"]:
        by_rule.setdefault(finding["code"], {}).setdefault(finding["task"], []).append(finding)
    place = _Place(
        suite,
        name,
        [task["id"] for task in document["tasks"]],
        {item["code"]: item for item in document["not_measured"]},
    )
    reported = {rule["code"] for rule in document["rules"]}
    lone = [{"code": code, "status": "fail"} for code in by_rule if code not in reported]
    for rule in [*document["rules"], *lone]:
        _rule(place, rule, by_rule.get(rule["code"], {}), known)
    counts = {"tests": len(suite.findall("testcase"))}
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        counts[attribute] = len(suite.findall(f"testcase/{tag}"))
    for attribute, count in counts.items():
        suite.set(attribute, str(count))
    suite.set("time", f"{float(document['trials'].get('seconds') or 0):.3f}")


def _rule(
    place: _Place,
    rule: Mapping[str, Any],
    found: Mapping[str | None, list[Mapping[str, Any]]],
    known: frozenset[str],
) -> None:
    code = rule["code"]
    for task, findings in found.items():
        _found(place.case(code, task), findings, known)
    if rule["status"] == "error":
        ET.SubElement(
            place.case(code, None),
            "error",
            message=xml_text(rule.get("reason", ""), 500),
            type="machinery",
        )
        return
    if code in place.partly or rule["status"] == "skip":
        # Which tasks were measured is not said: none of them may count as passed.
        reason = place.partly.get(code, rule)
        count = f"{reason['tasks']} tasks: " if "tasks" in reason else ""
        ET.SubElement(
            place.case(code, None),
            "skipped",
            message=xml_text(f"not measured, {count}{reason['reason']}", 500),
        )
        return
    passed = [task for task in place.tasks if task not in found]
    if len(place.tasks) > MANY:
        case = place.case(code, f"{len(passed)} tasks without findings")
        ET.SubElement(case, "system-out").text = "Too many tasks to list one by one."
    elif not (None in found and len(found) == 1):
        for task in passed:
            place.case(code, task)


def _found(case: ET.Element, findings: Sequence[Mapping[str, Any]], known: frozenset[str]) -> None:
    failing = [
        item
        for item in findings
        if item["severity"] == "error"
        and item["kind"] == "finding"
        and not item["waived"]
        and item["fingerprint"] not in known
    ]
    if failing:
        failure = ET.SubElement(
            case,
            "failure",
            message=xml_text(failing[0]["message"], 500),
            type=f"{failing[0]['code']}.{failing[0]['severity']}",
        )
        failure.text = "\n\n".join(_text(item) for item in failing)
        return
    excused = [item for item in findings if item["severity"] == "error"]
    if excused and excused[0]["kind"] == "finding":
        why = "waived" if excused[0]["waived"] else "known to the baseline"
        ET.SubElement(case, "skipped", message=xml_text(f"{why}: {excused[0]['message']}", 500))
    ET.SubElement(case, "system-out").text = "\n\n".join(_text(item) for item in findings)


def _text(finding: Mapping[str, Any]) -> str:
    lines = [f"[{finding['severity']}] {finding['message']}"]
    evidence = public_evidence(finding["evidence"])
    lines += [f"{name}: {text}" for name, text in evidence_lines(evidence)]
    if finding["location"]:
        lines.append(f"where: {finding['location']}")
    if finding["reproduce"]:
        lines.append(f"again: {finding['reproduce']}")
    return xml_text("\n".join(lines), 8000)
