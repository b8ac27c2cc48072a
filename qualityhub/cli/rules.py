"""``qualityhub rules``: the catalogue."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from qualityhub.cli.console import deliver, use_color
from qualityhub.cli.options import format_option, output_option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qualityhub.engine.rules.model import Rule

RULES_SCHEMA = "qualityhub.rules/1"


@click.command(short_help="List the rules, or print one rule's page.")
@click.argument("code", required=False)
@format_option("text", "json", "markdown")
@output_option
def rules(code: str | None, **given: Any) -> None:
    """List the rules, or print the page of the rule CODE.

    An unknown code exits 2 and names the nearest known one.
    """
    from qualityhub.engine.rules.catalogue import CATALOGUE, find_rule

    form, output = given["format"], given["output"]
    if code is None:
        deliver(_list(CATALOGUE, form), output)
        return
    deliver(_page(find_rule(code), form, color=output is None and use_color(sys.stdout)), output)


def rule_json(rule: Rule) -> dict[str, Any]:
    """Return a rule as data."""
    return {
        "code": rule.code,
        "version": rule.version,
        "title": rule.title,
        "family": rule.code[:3],
        "severity": rule.severity,
        "cost": rule.cost,
        "applies_to": sorted(rule.families),
        "layers": list(rule.layers),
        "what": rule.page.what,
        "why": rule.page.why,
        "example": rule.page.example,
        "fix": rule.page.fix,
    }


def rules_markdown(catalogue: Mapping[str, Rule], link: str = "") -> str:
    """Return the catalogue as Markdown tables by family.

    Args:
        catalogue: Rules by code.
        link: Text behind the code in a link to its page, e.g. ``.md``; none links nothing.
    """
    from qualityhub.engine.rules.pages import applies_to, family_title

    lines: list[str] = []
    family = ""
    for code, rule in catalogue.items():
        if code[:3] != family:
            family = code[:3]
            lines += ["", f"## {family}: {family_title(code)}", ""]
            lines += ["| code | rule | severity | cost | applies to |", "|---|---|---|---|---|"]
        shown = f"[{code}]({code}{link})" if link else code
        lines.append(
            f"| {shown} | {rule.title} | {rule.severity} | {rule.cost} | {applies_to(rule)} |"
        )
    return "\n".join(["# Rules", *lines, ""])


def _list(catalogue: Mapping[str, Rule], form: str) -> str:
    if form == "json":
        from qualityhub.engine.reports.json import dumps

        rows = [rule_json(rule) for rule in catalogue.values()]
        return dumps({"schema": RULES_SCHEMA, "rules": rows})
    if form == "markdown":
        return rules_markdown(catalogue)
    from qualityhub.engine.rules.pages import family_title

    lines: list[str] = []
    family = ""
    for code, rule in catalogue.items():
        if code[:3] != family:
            family = code[:3]
            lines += ["", f"{family}  {family_title(code)}"]
        lines.append(f"  {code}  {rule.severity:<8} {rule.cost:<10} {rule.title}")
    return "\n".join(lines).lstrip("\n") + "\n\nOne rule's page: qualityhub rules CODE\n"


def _page(rule: Rule, form: str, *, color: bool) -> str:
    if form == "json":
        from qualityhub.engine.reports.json import dumps

        return dumps(rule_json(rule))
    from qualityhub.engine.rules.pages import rule_page

    page = rule_page(rule)
    if form == "markdown":
        return page
    lines = []
    for line in page.splitlines():
        if line.startswith("#"):
            title = line.lstrip("# ")
            lines.append(click.style(title, bold=True) if color else title)
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"
