"""A rule's page. The command line, the documentation, SARIF and the dashboard show this text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qualityhub.engine.rules.model import Rule

FAMILIES = {
    "FMT": "Format and schema",
    "VER": "Test cases and verifier",
    "DEP": "Dependencies and build",
    "DET": "Reward determinism",
    "ISO": "Sandbox and reward channel",
    "SIG": "Difficulty and learning signal",
    "DAT": "Data, leakage, safety",
    "DRF": "Drift",
}
COSTS = {
    "static": "static: reads files, runs nothing",
    "behaviour": "behaviour: runs trials in a sandbox",
}
APPLIES = {
    "function": "function (code with tests)",
    "scorer": "scorer (data set with a reward function)",
    "episode": "episode (reset and step)",
    "task": "task (solution and verifier scripts)",
}


def family_title(code: str) -> str:
    """Return the name of the family that a rule code belongs to."""
    return FAMILIES.get(code[:3], code[:3])


def applies_to(rule: Rule | type[Rule]) -> str:
    """Return the kinds of environment a rule looks at."""
    if set(rule.families) >= set(APPLIES):
        return "every environment"
    return ", ".join(text for family, text in APPLIES.items() if family in rule.families)


def rule_page(rule: Rule | type[Rule]) -> str:
    """Return the page as Markdown with fixed headings."""
    page = rule.page
    return "\n".join(
        [
            f"# {rule.code}: {rule.title}",
            "",
            "## What it does",
            "",
            page.what.strip(),
            "",
            "## Why it matters",
            "",
            page.why.strip(),
            "",
            "## Example",
            "",
            page.example.strip(),
            "",
            "## Fix",
            "",
            page.fix.strip(),
            "",
            "## Severity, cost, applies to",
            "",
            f"- Severity: {rule.severity}",
            f"- Cost: {COSTS[rule.cost]}",
            f"- Applies to: {applies_to(rule)}",
            f"- Family: {family_title(rule.code)}",
            f"- Depends on: {', '.join(rule.layers)}",
            f"- Version: {rule.version}",
            "",
        ]
    )
