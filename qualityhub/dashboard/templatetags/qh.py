"""Tags and filters of the pages: states, numbers, times, foreign text."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, TypeGuard

from django import template
from django.urls import reverse
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from qualityhub import __version__
from qualityhub.dashboard.states import SHAPES, state_of
from qualityhub.engine.reports.safe import printable, xml_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.template import Context

    from qualityhub.registry.models import Domain

register = template.Library()
CODE = re.compile(r"`([^`]+)`")
LONGEST_BLOCK = 20_000
NAVIGATION = (
    ("Overview", "overview", ("overview", "domain", "environment")),
    ("Inspections", "inspections", ("inspections", "inspection", "inspection-findings", "trial")),
    ("Gates", "gates", ("gates", "gate")),
    ("Checkpoints", "checkpoints", ("checkpoints",)),
    ("Audits", "audits", ("audits",)),
    ("Rules", "rules", ("rules", "rule")),
    ("Tokens", "tokens", ("tokens",)),
)
OPERATIONS = (("Workers", "workers", ("workers",)),)
MEASURES = {
    "input_tokens": "input tokens",
    "output_tokens": "output tokens",
    "cost": "cost",
    "latency_ms": "latency, ms",
    "turns": "turns",
}
NONE = "\N{EN DASH}"
MINUTE, HOUR, DAY = 60, 3600, 86_400


@register.simple_tag(takes_context=True)
def navigation(context: Context) -> list[dict[str, Any]]:
    """Return the main links; none for who is not signed in."""
    request = context.get("request")
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return []
    match = getattr(request, "resolver_match", None)
    here = match.url_name if match is not None and match.app_names == ["dashboard"] else ""
    return [
        {"label": label, "url": reverse(f"dashboard:{name}"), "current": here in names}
        for label, name, names in (*NAVIGATION, *(OPERATIONS if user.is_staff else ()))
    ]


@register.simple_tag
def hub_version() -> str:
    """Return the version of the hub."""
    return __version__


@register.simple_tag
def state(value: str | None, kind: str = "", size: str = "") -> SafeString:
    """Return a verdict, status or severity as word, shape and colour."""
    return _state(value, kind, size)


# There are few values, and hundreds of them on a page.
@lru_cache(maxsize=1024)
def _state(value: str | None, kind: str, size: str) -> SafeString:
    shown = state_of(value, kind)
    return format_html(
        '<span class="state {}{}">{}{}</span>',
        shown.tone,
        " big" if size == "big" else "",
        _symbol(shown.shape),
        printable(shown.word, 40),
    )


@register.simple_tag
def symbol(value: str | None, kind: str = "") -> SafeString:
    """Return the shape alone; the word has to stand beside it."""
    return _mark(value, kind)


@lru_cache(maxsize=1024)
def _mark(value: str | None, kind: str) -> SafeString:
    shown = state_of(value, kind)
    return format_html('<span class="mark {}">{}</span>', shown.tone, _symbol(shown.shape))


@register.filter
def word(value: str | None, kind: str = "") -> str:
    """Return the word of a state."""
    return state_of(value, kind).word


@register.filter
def tone(value: str | None, kind: str = "") -> str:
    """Return the colour class of a state."""
    return state_of(value, kind).tone


@register.simple_tag
def stacked(counts: Mapping[str, int], label: str = "") -> SafeString:
    """Return counts by state as a bar; the words beside it say the same to everybody."""
    total = sum(counts.values())
    if not total:
        return mark_safe("")
    parts = [(state_of(name), count) for name, count in counts.items() if count]
    said = ", ".join(f"{count:,} {shown.word}" for shown, count in parts)
    pieces = format_html_join(
        "",
        '<i class="{}" style="width:{}%"></i>',
        ((shown.tone, f"{100 * count / total:.2f}") for shown, count in parts),
    )
    return format_html(
        '<span class="bar" role="img" aria-label="{}">{}</span>', f"{label} {said}".strip(), pieces
    )


@register.filter
def number(value: object) -> str:
    """Return a count with separators."""
    return f"{value:,}" if _is_number(value) else NONE


@register.filter
def plural(count: int | None, noun: str) -> str:
    """Return a count with its noun: ``3 tasks``; ``entry|entries`` gives an odd plural."""
    one, _, many = noun.partition("|")
    return f"{count or 0:,} {one if count == 1 else many or one + 's'}"


@register.filter
def percent(fraction: object) -> str:
    """Return a share in percent."""
    return f"{100 * fraction:.1f} %" if _is_number(fraction) else NONE


@register.filter
def points(fraction: object) -> str:
    """Return a change in percentage points, with its sign."""
    return _signed(100 * fraction) if _is_number(fraction) else NONE


@register.filter
def interval(row: Any) -> str:
    """Return the bounds of a change in points; ``row`` is a mapping or has attributes."""
    lower, upper = (_read(row, name) for name in ("lower", "upper"))
    if not (_is_number(lower) and _is_number(upper)):
        return NONE
    return f"{_signed(100 * lower)} … {_signed(100 * upper)}"


@register.filter
def margin(fraction: object) -> str:
    """Return an accepted drop in points, without a sign."""
    return f"{100 * fraction:.1f}" if _is_number(fraction) else NONE


@register.filter
def seconds(value: object) -> str:
    """Return a duration as a person says it."""
    if not _is_number(value):
        return NONE
    if value < 10:
        return f"{value:.1f} s"
    if value < 2 * MINUTE:
        return f"{value:.0f} s"
    if value < 2 * HOUR:
        return f"{value / MINUTE:.0f} min"
    return f"{value / HOUR:.1f} h"


@register.filter
def ago(moment: datetime | None) -> SafeString:
    """Return a time as ``<time>`` with relative words; the exact one is its title."""
    if not isinstance(moment, datetime):
        return mark_safe('<span class="muted">never</span>')
    moment = moment.astimezone(UTC)
    return format_html(
        '<time datetime="{}" title="{} UTC">{}</time>',
        moment.isoformat(timespec="seconds"),
        moment.strftime("%Y-%m-%d %H:%M:%S"),
        _relative((datetime.now(UTC) - moment).total_seconds(), moment),
    )


@register.filter
def clean(value: object, limit: int = 0) -> str:
    """Return foreign text as one line without controls; escaping is left to the template."""
    text = "" if value is None else str(value)
    if text.isprintable() and (not limit or len(text) <= limit):
        return text
    return printable(text, int(limit))


@register.filter
def block(value: object) -> str:
    """Return foreign output of many lines, controls made visible, cut where it is endless."""
    return xml_text("" if value is None else value, LONGEST_BLOCK)


@register.filter
def output(value: object) -> str:
    """Return foreign output of many lines, controls made visible; the view bounds its length."""
    return xml_text("" if value is None else value)


@register.filter
def ticks(value: object) -> SafeString:
    """Return text whose `ticked` parts are code; everything else is escaped."""
    return mark_safe(CODE.sub(r"<code>\1</code>", escape(printable(value))))  # noqa: S308 - escaped.


@register.filter
def digest(value: str) -> str:
    """Return the head of a digest: enough to tell two apart by eye."""
    kind, colon, rest = str(value).partition(":")
    return f"{kind}{colon}{rest[:12]}" if colon else kind[:16]


@register.filter
def item(mapping: Mapping[str, Any] | None, key: str) -> Any:
    """Return a member of a mapping, or None."""
    return (mapping or {}).get(key)


@register.filter
def split(text: str) -> list[str]:
    """Return the words of a text, to loop over."""
    return text.split()


@register.filter
def chance(value: object) -> str:
    """Return a probability; tiny ones as a bound."""
    if not _is_number(value):
        return NONE
    return "below 0.0001" if value < 0.0001 else f"{value:.4f}".rstrip("0").rstrip(".")


@register.filter
def amount(value: object) -> str:
    """Return a measured amount with as many digits as a person reads."""
    if not _is_number(value):
        return NONE
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


@register.filter
def measure(name: str) -> str:
    """Return the name of a metric in words."""
    return MEASURES.get(name, printable(name, 40))


@register.filter
def address(value: object) -> str:
    """Return a trace reference where it is a web address, else nothing to link to."""
    text = str(value or "")
    return text if text.startswith(("https://", "http://")) and text.isprintable() else ""


@register.simple_tag(takes_context=True)
def page_url(context: Context, key: str, number: int) -> str:
    """Return this address with another page of a list; filters stay."""
    query = context["request"].GET.copy()
    query[key] = str(number)
    return f"?{query.urlencode()}"


@register.simple_tag(takes_context=True)
def domain_url(context: Context, domain: Domain) -> str:
    """Return a domain's address: by slug, or by id where the actor's teams may share slugs."""
    actor = getattr(context["request"], "qh_actor", None)
    alone = actor is not None and len(actor.team_ids) == 1
    return reverse("dashboard:domain", args=[domain.slug if alone else domain.public_id])


def _is_number(value: object) -> TypeGuard[float]:
    """Tell numbers from what templates give for a name that is missing."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@cache
def _symbol(shape: str) -> SafeString:
    return format_html(
        '<svg viewBox="0 0 16 16" aria-hidden="true"><path fill-rule="evenodd" d="{}"/></svg>',
        SHAPES[shape],
    )


def _signed(value: float) -> str:
    rounded = round(value, 1)
    if not rounded:
        return "0.0"
    return f"{rounded:+.1f}".replace("-", "−")  # noqa: RUF001 - minus


def _read(row: Any, name: str) -> Any:
    return row.get(name) if hasattr(row, "get") else getattr(row, name)


def _relative(age: float, moment: datetime) -> str:
    ahead = age < 0
    age = abs(age)
    if age < MINUTE:
        return "soon" if ahead else "just now"
    for size, name in ((DAY, "day"), (HOUR, "hour"), (MINUTE, "minute")):
        if age >= size:
            count = int(age // size)
            if size == DAY and count > 30:
                return moment.strftime("%Y-%m-%d")
            words = f"{count} {name}{'' if count == 1 else 's'}"
            return f"in {words}" if ahead else f"{words} ago"
    return ""
