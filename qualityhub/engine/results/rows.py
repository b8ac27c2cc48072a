"""One rollout row: the contract that files and the hub's streamed ingest share."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Annotated, Any, Literal, get_args

import msgspec

from qualityhub.engine.errors import InvalidInputError

Validity = Literal["valid", "model-failure", "invalid-infra", "invalid-grader"]
VALIDITIES: tuple[Validity, ...] = get_args(Validity)

MAX_LINE_BYTES = 1024 * 1024
"""A longer line is no rollout row: traces belong behind ``trace_ref``."""

# Rewards are squared and summed; a larger one is a broken scorer, not a score.
MAX_REWARD = 1e9

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
_Reference = Annotated[str, msgspec.Meta(max_length=2048)]
_Reward = Annotated[float, msgspec.Meta(ge=-MAX_REWARD, le=MAX_REWARD)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Amount = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
_Attempt = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class RolloutRow(msgspec.Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    """One attempt at one task.

    Attributes:
        task: Task id within its domain.
        attempt: Index of the attempt; (run, domain, task, attempt) is the row's identity.
        domain: Domain name, or None where the caller supplies it.
        task_digest: Digest of the task as it was run; equal digests may be compared.
        reward: The score; None where ``passed`` says it all or the rollout is not valid.
        passed: Whether the task counts as solved; reward 1 or 0 where no reward is given.
        validity: Whose fault a missing score is; see :data:`Validity`.
        latency_ms: Wall-clock milliseconds of the attempt.
        input_tokens: Tokens read.
        output_tokens: Tokens written.
        cost: In the currency of the run.
        turns: Turns of the conversation.
        context_tokens: Largest context of the attempt.
        trace_ref: Where the trace is.
        attributes: Anything else, e.g. the source's own name for the validity.
    """

    task: _Name
    attempt: _Attempt
    domain: _Name | None = None
    task_digest: Annotated[str, msgspec.Meta(max_length=256)] | None = None
    reward: _Reward | None = None
    passed: bool | None = None
    validity: Validity = "valid"
    latency_ms: _Amount | None = None
    input_tokens: _Count | None = None
    output_tokens: _Count | None = None
    cost: _Amount | None = None
    turns: _Count | None = None
    context_tokens: _Count | None = None
    trace_ref: _Reference | None = None
    attributes: dict[str, Any] | None = None

    @property
    def value(self) -> float:
        """The reward; 1 or 0 from ``passed`` where there is none; 0 where there is neither."""
        if self.reward is not None:
            return self.reward
        return 1.0 if self.passed else 0.0

    @property
    def solved(self) -> bool:
        """Whether it counts as solved: ``passed``, else a reward of at least 1."""
        return self.passed if self.passed is not None else self.value >= 1.0


FIELDS: tuple[str, ...] = RolloutRow.__struct_fields__


class RowError(InvalidInputError):
    """A row that cannot be used.

    Args:
        code: Stable code, ``results.…``.
        message: What is wrong, beginning with ``source:line``.
        hint: What to do about it.
        line: Physical line, counted from 1.
        source: File name, or empty for a stream.
    """

    def __init__(
        self, code: str, message: str, hint: str = "", *, line: int = 0, source: str = ""
    ) -> None:
        where = f"{source}:{line}" if source else f"line {line}"
        super().__init__(code, f"{where}: {message}", hint)
        self.line = line
        self.source = source


_DECODER = msgspec.json.Decoder(RolloutRow)
_UNKNOWN = re.compile(r"unknown field `(.*)`", re.DOTALL)
_AT = re.compile(r" - at `\$\.?(.*?)`$")
_NOT_FINITE = re.compile(rb"[:\[,]\s*-?(?:NaN|Infinity|inf|nan)\b")


def decode_block(block: bytes, first_line: int = 1, source: str = "") -> list[RolloutRow]:
    """Return the rows of a block of complete NDJSON lines; blank lines carry no row.

    Args:
        block: Whole lines; the last may lack its newline.
        first_line: Number of the block's first line, for messages.
        source: File name for messages, or empty for a stream.

    Raises:
        RowError: The first bad line, with its number and a stable code: ``results.bad_row``,
            ``results.truncated``, ``results.wrong_type``, ``results.unknown_key``,
            ``results.not_utf8``, ``results.not_finite``, ``results.too_large``.
    """
    lines = block.count(b"\n") + (not block.endswith(b"\n"))
    # Decoding all lines at once is several times faster than one by one. Whatever looks unusual
    # goes the slow way, which names the line.
    if b"\\u0000" not in block:
        try:
            rows = _DECODER.decode_lines(block)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            rows = []
        if len(rows) == lines and not _has_long_line(block) and all(map(_complete, rows)):
            return rows
    return _decode_one_by_one(block, first_line, source)


def row_problem(row: RolloutRow) -> tuple[str, str, str] | None:
    """Return (code, message, hint) for what types alone cannot say, or None for a sound row."""
    if not _complete(row):
        return (
            "results.bad_row",
            "the row has neither reward nor passed.",
            'A rollout without a score needs another "validity", e.g. "invalid-infra".',
        )
    for name in ("task", "domain", "task_digest", "trace_ref"):
        text = getattr(row, name)
        if text is not None and "\0" in text:
            return ("results.bad_row", f"{name} contains a NUL character.", "")
    if row.attributes and "\\u0000" in msgspec.json.encode(row.attributes).decode():
        return ("results.bad_row", "attributes contain a NUL character.", "")
    return None


def explain(error: Exception) -> tuple[str, str, str]:
    """Return (code, message, hint) for a decoder's error."""
    text = str(error)
    if unknown := _UNKNOWN.search(text):
        return unknown_field(unknown.group(1))
    if isinstance(error, msgspec.ValidationError):
        return _explain_value(text)
    if isinstance(error, RecursionError):
        return ("results.bad_row", "the row is nested too deeply.", "")
    if "UTF-8" in text or "utf-16 surrogate" in text:
        return ("results.not_utf8", "the line is not valid UTF-8 text.", "")
    return ("results.bad_row", f"{text[:1].lower()}{text[1:]}.", "")


def _explain_value(text: str) -> tuple[str, str, str]:
    at = _AT.search(text)
    field = at.group(1) if at else ""
    reason = _AT.sub("", text)
    if "out of range" in text:
        return ("results.not_finite", f"{field or 'a number'} is not a finite number.", "")
    if "missing required field" in text:
        return ("results.bad_row", f"{reason[:1].lower()}{reason[1:]}.", "")
    hint = f"Known values: {', '.join(VALIDITIES)}." if field == "validity" else ""
    return ("results.wrong_type", f"{field}: {reason}." if field else f"{reason}.", hint)


def unknown_field(name: str) -> tuple[str, str, str]:
    """Return (code, message, hint) for a field the contract does not have."""
    near = get_close_matches(name, FIELDS, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Known fields: {', '.join(FIELDS)}."
    return ("results.unknown_key", f"unknown field {name[:80]!r}.", hint)


def _complete(row: RolloutRow) -> bool:
    return row.reward is not None or row.passed is not None or row.validity != "valid"


def _has_long_line(block: bytes) -> bool:
    return len(block) > MAX_LINE_BYTES and max(map(len, block.split(b"\n"))) > MAX_LINE_BYTES


def _decode_one_by_one(block: bytes, first_line: int, source: str) -> list[RolloutRow]:
    rows: list[RolloutRow] = []
    for line, text in enumerate(block.split(b"\n"), first_line):
        if not text or text.isspace():
            continue
        if len(text) > MAX_LINE_BYTES:
            raise RowError(
                "results.too_large",
                f"the line has {len(text):,} bytes; at most {MAX_LINE_BYTES:,} are read.",
                "Keep traces elsewhere and name them in trace_ref.",
                line=line,
                source=source,
            )
        try:
            row = _DECODER.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            code, message, hint = explain(error)
            if "truncated" in str(error):
                code, message = "results.truncated", "the line ends in the middle of a row."
                hint = "Write the file completely, or leave the last line out."
            elif _NOT_FINITE.search(text):
                code, message = "results.not_finite", "NaN and infinities are no rewards."
                hint = 'Give a rollout without a score "validity": "invalid-grader".'
            raise RowError(code, message, hint, line=line, source=source) from error
        if problem := row_problem(row):
            raise RowError(*problem, line=line, source=source)
        rows.append(row)
    return rows
