"""``qualityhub inspect --plan``: what would run, without running it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from qualityhub.cli.progress import progress_for
from qualityhub.engine.reports.safe import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from qualityhub.engine.inspect import InspectOptions

PLANS_SCHEMA = "qualityhub.plans/1"


def plan_documents(sources: Sequence[str], options: InspectOptions) -> dict[str, Any]:
    """Return what the first round of every source's inspection would run.

    Raises:
        UnreadablePackageError: A package cannot be read.
    """
    plans = []
    for source in sources:
        with progress_for(source):
            from qualityhub.engine.inspect import plan_source

            plans.append({"source": source, **asdict(plan_source(source, options))})
    return {"schema": PLANS_SCHEMA, "plans": plans}


def plan_text(document: Mapping[str, Any]) -> str:
    """Render the plans for people."""
    from qualityhub.engine.rules.catalogue import CATALOGUE

    blocks = []
    for plan in document["plans"]:
        environment = plan["environment"]
        adapter, tasks = printable(environment["adapter"]), environment["tasks"]
        cached = f", {plan['cached']:,} of them stored already" if plan["cached"] else ""
        lines = [
            f"{printable(environment['name'], 80)}  ({adapter}, {tasks:,} tasks)",
            f"  first round: {plan['asks']:,} observations in {plan['trials']:,} trials{cached}",
        ]
        for code, asks in plan["by_rule"].items():
            rule = CATALOGUE.get(code)
            static = rule is not None and rule.cost == "static"
            count = f"{asks:,} observations" if asks else "reads files" if static else "nothing"
            lines.append(f"  {printable(code)}  {count:>22}  {rule.title if rule else ''}".rstrip())
        lines.append("  Later rounds depend on what the first one shows; rules share observations.")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"
