"""Makes foreign text harmless for the place it is shown in.

Names, messages and outputs come from environments. A terminal must not receive escape sequences
or direction overrides, a comment must not receive markup, links or mentions, XML must not receive
characters it cannot hold.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

ANSWER_KEY = "answer_key"
OUTPUTS = frozenset({"detail", "diff", "log", "output", "stderr", "stdout"})
"""Raw output of verifiers and builds: it may quote hidden tests and answers."""

_PRIVATE = OUTPUTS | {ANSWER_KEY}
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_MARKDOWN = frozenset("\\`*_[]#!|~$")
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_JOINER = "\u2060"  # Zero width: stops mentions, references and bare links, shows nothing.
_LINKS = re.compile(r"@|#|:(?=//)|www(?=\.)", re.IGNORECASE)


def printable(text: object, limit: int = 0) -> str:
    """Return one line of printable text: controls, overrides and line ends become escapes.

    Args:
        text: Anything; ``str`` is applied.
        limit: Characters to keep, 0 for all; what is cut is counted.
    """
    line = "".join(
        character if unicodedata.category(character) not in _UNSAFE else _escaped(character)
        for character in str(text)
    )
    return shortened(line, limit)


def shortened(text: str, limit: int) -> str:
    """Return at most about ``limit`` characters and say how many were cut; 0 keeps all."""
    if not limit or len(text) <= limit:
        return text
    return f"{text[:limit]}… (+{len(text) - limit} characters)"


def printable_lines(text: object, lines: int, width: int) -> list[str]:
    """Return the last ``lines`` lines, each printable and cut to ``width`` characters."""
    rows = [row for row in str(text).splitlines() if row.strip()]
    kept = [printable(row.expandtabs(4), width) for row in rows[-lines:]]
    return [f"… ({len(rows) - lines} lines before)", *kept] if len(rows) > lines else kept


def markdown(text: object, limit: int = 0) -> str:
    """Return text for a Markdown comment that renders as itself: no markup, links or mentions."""
    line = "".join(
        _ENTITIES.get(character, f"\\{character}" if character in _MARKDOWN else character)
        for character in printable(text, limit)
    )
    # At the start of a line these would open a list, a heading or a rule.
    line = f"\\{line}" if line[:1] in {"-", "+", "="} else line
    return _LINKS.sub(lambda match: match[0] + _JOINER, line)


def markdown_code(text: object, limit: int = 0) -> str:
    """Return text as a Markdown code span that no content can end."""
    line = printable(text, limit).replace("|", "\\|")
    if not line.strip():
        return "(empty)"
    run = longest = 0
    for character in line:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    fence = "`" * (longest + 1)
    padding = " " if line[0] in "` " or line[-1] in "` " else ""
    return f"{fence}{padding}{line}{padding}{fence}"


def xml_text(text: object, limit: int = 0) -> str:
    """Return text that XML 1.0 can hold; line ends stay, everything else unsafe is escaped."""
    whole = "".join(
        character
        if character in "\n\t" or unicodedata.category(character) not in _UNSAFE
        else _escaped(character)
        for character in str(text)
    )
    return shortened(whole, limit)


def public_evidence(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Return evidence that may leave the hub: without answer keys and raw outputs, at any depth."""
    return {key: _public(value) for key, value in evidence.items() if str(key) not in _PRIVATE}


def _public(value: Any) -> Any:
    if isinstance(value, Mapping):
        return public_evidence(value)
    if isinstance(value, (list, tuple)):
        return [_public(item) for item in value]
    return value


def _escaped(character: str) -> str:
    named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
    if character in named:
        return named[character]
    point = ord(character)
    if point <= 0xFF:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point <= 0xFFFF else f"\\U{point:08x}"
