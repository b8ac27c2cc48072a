"""Scripted submissions: what is sent in place of a model's answer."""

from __future__ import annotations

ORACLE = "oracle"
NOP = "nop"
TRACE = "trace"
MALFORMED_PREFIX = "malformed:"

MALFORMED: dict[str, str] = {
    "blank": " \n\t ",
    "nul": "\u0000",
    "empty-list": "[]",
    "empty-object": "{}",
    "null": "null",
    "nan": "NaN",
    "infinity": "-inf",
    "overflow": "1e999",
    "zero-division": "1/0",
    "many-digits": "9" * 5000,
    "superscript-digit": "\u00b2",
    "unbalanced": "((((([{",
    "open-box": "\\boxed{",
    "open-tag": "<answer>",
    "fence": "```python\n",
    "long": "lorem ipsum " * 4000,
    "tower": "9**9**9**9",
    "words": "I do not know.",
}
"""Answers a policy under training really sends: cut off, empty, prose, numbers that no number type
holds. A verifier may give them any reward below success; it may not raise or hang."""
