"""A gate's report as its page shows it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SHOWN_DETAILS = 20
SHOWN_EXCLUDED = 20

MEANING = {
    "promote": (
        "No domain, no group and not the whole got worse by more than its margin.",
        "The candidate may take the baseline's place: set it as what the next one is compared to.",
    ),
    "block": (
        "At least one domain, group or the whole got worse, beyond what chance explains.",
        "Look at the worst tasks of the blocked domains below, then gate the next checkpoint.",
    ),
    "inconclusive": (
        "The rollouts so far cannot tell whether a domain got worse.",
        "Collect the rollouts that the open domains name below, on both sides, and gate again.",
    ),
    "incomparable": (
        "Candidate and baseline were not measured on the same thing.",
        "Repair the coverage or the invalid rollouts that the domains name below, and gate again.",
    ),
}


@dataclass(frozen=True, slots=True)
class DomainDetail:
    """What unfolds below the table for one domain.

    Attributes:
        raw: The domain of the document.
        excluded: Reasons with counts.
        tasks: The first tasks that were excluded, with the reason.
        metrics: Name and numbers, where any were sent.
        wanted: Whether the address asked for it.
    """

    raw: Mapping[str, Any]
    excluded: tuple[tuple[str, int], ...]
    tasks: tuple[Mapping[str, Any], ...]
    metrics: tuple[tuple[str, Mapping[str, Any]], ...]
    wanted: bool


def domain_details(document: Mapping[str, Any], wanted: str) -> list[DomainDetail]:
    """Return the domains to unfold: the one asked for, and the first that are not settled well."""
    open_ones = [item for item in document["domains"] if item["verdict"] != "promote"]
    calm = [item for item in document["domains"] if item["verdict"] == "promote"]
    few = [*open_ones, *calm][:SHOWN_DETAILS]
    asked = [item for item in document["domains"] if item["domain"] == wanted and item not in few]
    return [_detail(item, item["domain"] == wanted) for item in [*asked, *few]]


def _detail(item: Mapping[str, Any], wanted: bool) -> DomainDetail:
    excluded: Sequence[Mapping[str, Any]] = item.get("excluded") or ()
    return DomainDetail(
        raw=item,
        excluded=tuple(Counter(str(row.get("reason", "")) for row in excluded).most_common(8)),
        tasks=tuple(excluded[:SHOWN_EXCLUDED]),
        metrics=tuple((item.get("metrics") or {}).items()),
        wanted=wanted,
    )
