"""A gate's decision as JUnit XML: one test case per domain, one for the whole."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

# Only written with: no foreign XML is parsed here.
from xml.etree import ElementTree as ET

from qualityhub.engine.reports.gate_comment import change, needed
from qualityhub.engine.reports.safe import xml_text

if TYPE_CHECKING:
    from collections.abc import Mapping


def gate_cases(document: Mapping[str, Any]) -> str:
    """Render a gate document: block fails, incomparable is an error, inconclusive is skipped."""
    suites = ET.Element("testsuites", name="qualityhub gate")
    suite = ET.SubElement(suites, "testsuite", name="gate")
    for domain in document["domains"]:
        case = ET.SubElement(
            suite, "testcase", classname="gate", name=xml_text(domain["domain"], 300), time="0"
        )
        _verdict(case, domain["verdict"], str(domain.get("reason") or ""), domain)
    whole = ET.SubElement(suite, "testcase", classname="gate", name="whole checkpoint", time="0")
    reasons = " ".join(str(reason) for reason in document.get("reasons", ()))
    _verdict(whole, document["verdict"], reasons, document.get("overall") or {})
    counts = {"tests": len(suite.findall("testcase"))}
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        counts[attribute] = len(suite.findall(f"testcase/{tag}"))
    for element in (suite, suites):
        for attribute, count in counts.items():
            element.set(attribute, str(count))
    ET.indent(suites)
    out = BytesIO()
    ET.ElementTree(suites).write(out, encoding="utf-8", xml_declaration=True)
    return out.getvalue().decode() + "\n"


def _verdict(case: ET.Element, verdict: str, reason: str, level: Mapping[str, Any]) -> None:
    text = xml_text(f"{change(level)} points; {needed(level) or 'nothing more is needed'}", 2000)
    tag = {"block": "failure", "incomparable": "error", "inconclusive": "skipped"}.get(verdict)
    if tag is None:
        ET.SubElement(case, "system-out").text = text
        return
    mark = ET.SubElement(case, tag, message=xml_text(reason or verdict, 1000))
    if tag != "skipped":
        mark.set("type", verdict)
    mark.text = text
