"""Result files: NDJSON and CSV, plain or gzip, told apart by content, read block by block."""

from __future__ import annotations

import csv
import gzip
import stat
import zlib
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from qualityhub.engine.errors import InvalidInputError
from qualityhub.engine.results.rows import (
    FIELDS,
    MAX_LINE_BYTES,
    RolloutRow,
    RowError,
    decode_block,
    explain,
    row_problem,
    unknown_field,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BLOCK_BYTES = 256 * 1024
MAX_FILE_BYTES = 8 * 1024**3
"""Decoded bytes of one file; a decompression bomb ends here."""

_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_OTHER_FORMATS = {
    b"PK\x03\x04": "a ZIP archive",
    b"PAR1": "a Parquet file",
    b"\x28\xb5\x2f\xfd": "a Zstandard file",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ": "an xz file",
    b"SQLite": "an SQLite database",
    b"%PDF": "a PDF document",
}
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_NOT_FINITE = frozenset({"nan", "inf", "infinity"})
_BATCH = 2000


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def read_rows(path: Path) -> Iterator[list[RolloutRow]]:
    """Yield the rows of one result file in blocks.

    Args:
        path: NDJSON or CSV with a header line, UTF-8, plain or gzip; detected by content.

    Raises:
        RowError: A bad row, as ``file:line``.
        InvalidInputError: ``results.not_found``, ``results.not_a_file``, ``results.unreadable``,
            ``results.unknown_format``, ``results.empty``, ``results.truncated``,
            ``results.not_utf8``, ``results.too_large``.
    """
    source = path.name
    found = False
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InvalidInputError("results.not_a_file", f"{path} is not a regular file.")
        with path.open("rb") as raw:
            packed = raw.read(2) == _GZIP
            raw.seek(0)
            stream: _Readable = gzip.GzipFile(fileobj=raw) if packed else raw
            for rows in _parse(stream, source):
                found = found or bool(rows)
                yield rows
    except FileNotFoundError as error:
        raise InvalidInputError("results.not_found", f"There is no file {path}.") from error
    except EOFError as error:
        raise InvalidInputError(
            "results.truncated", f"{source} ends in the middle of its gzip stream.", _COPY_AGAIN
        ) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InvalidInputError(
            "results.unreadable", f"{source} is a damaged gzip file: {error}.", _COPY_AGAIN
        ) from error
    except OSError as error:
        raise InvalidInputError(
            "results.unreadable", f"Cannot read {path}: {error.strerror or error}."
        ) from error
    if not found:
        raise InvalidInputError("results.empty", f"{source} contains no rollout rows.")


_COPY_AGAIN = "Copy or export the file again."


def _parse(stream: _Readable, source: str) -> Iterator[list[RolloutRow]]:
    head = stream.read(BLOCK_BYTES)
    for magic, name in _OTHER_FORMATS.items():
        if head.startswith(magic):
            raise InvalidInputError(
                "results.unknown_format", f"{source} is {name}.", "Export it as NDJSON or CSV."
            )
    if head.startswith(_UTF16):
        raise InvalidInputError(
            "results.not_utf8", f"{source} is UTF-16 text.", "Save it as UTF-8."
        )
    head = head.removeprefix(_BOM)
    first = head.lstrip()[:1]
    if first == b"[":
        raise InvalidInputError(
            "results.unknown_format",
            f"{source} is one JSON array.",
            "Write one JSON object per line: jq -c '.[]' FILE.",
        )
    blocks = _whole_lines(head, stream, source)
    if first in {b"{", b""}:
        return _ndjson(blocks, source)
    return _csv(blocks, source)


def _whole_lines(head: bytes, stream: _Readable, source: str) -> Iterator[tuple[bytes, int]]:
    """Yield (block of whole lines, number of its first line); the last may lack its newline."""
    rest = head
    line = 1
    total = len(head)
    while rest:
        cut = rest.rfind(b"\n") + 1
        if cut:
            yield rest[:cut], line
            line += rest.count(b"\n", 0, cut)
        chunk = stream.read(BLOCK_BYTES)
        rest = rest[cut:] + chunk
        total += len(chunk)
        if not chunk:
            break
        if total > MAX_FILE_BYTES:
            raise InvalidInputError(
                "results.too_large",
                f"{source} has more than {MAX_FILE_BYTES:,} bytes decoded.",
                "Split it and name all the parts.",
            )
        if len(rest) - len(chunk) > MAX_LINE_BYTES:
            raise RowError(
                "results.too_large",
                f"the line has more than {MAX_LINE_BYTES:,} bytes.",
                "Keep traces elsewhere and name them in trace_ref.",
                line=line,
                source=source,
            )
    if rest:
        yield rest, line


def _ndjson(blocks: Iterator[tuple[bytes, int]], source: str) -> Iterator[list[RolloutRow]]:
    for block, line in blocks:
        yield decode_block(block, line, source)


def _csv(blocks: Iterator[tuple[bytes, int]], source: str) -> Iterator[list[RolloutRow]]:
    reader = csv.reader(_text_lines(blocks, source), strict=True, skipinitialspace=True)
    try:
        header = next(reader, None)
        if header is None:
            return
        columns = _columns(header, source)
        rows: list[RolloutRow] = []
        for cells in reader:
            if not any(cells):
                continue
            if len(cells) != len(columns):
                raise _wrong_width(cells, columns, reader.line_num, source)
            rows.append(_csv_row(dict(zip(columns, cells, strict=True)), reader.line_num, source))
            if len(rows) == _BATCH:
                yield rows
                rows = []
        yield rows
    except csv.Error as error:
        text = str(error)
        if "unexpected end of data" in text:
            raise RowError(
                "results.truncated",
                "the file ends inside a quoted cell.",
                _COPY_AGAIN,
                line=reader.line_num,
                source=source,
            ) from error
        code = "results.too_large" if "field limit" in text else "results.bad_row"
        raise RowError(code, f"{text}.", line=reader.line_num, source=source) from error


def _text_lines(blocks: Iterator[tuple[bytes, int]], source: str) -> Iterator[str]:
    for block, first in blocks:
        for line, raw in enumerate(block.splitlines(keepends=True), first):
            try:
                yield raw.decode()
            except UnicodeDecodeError as error:
                raise RowError(
                    "results.not_utf8",
                    "the line is not valid UTF-8 text.",
                    "Save the file as UTF-8.",
                    line=line,
                    source=source,
                ) from error


def _columns(header: list[str], source: str) -> list[str]:
    columns = [name.strip() for name in header]
    if len(columns) == 1 and any(mark in columns[0] for mark in ";\t"):
        raise RowError(
            "results.unknown_format",
            "the columns are separated by semicolons or tabs.",
            "Save it with commas.",
            line=1,
            source=source,
        )
    for name in columns:
        if name not in FIELDS:
            code, message, hint = unknown_field(name)
            hint += " A CSV file begins with a line of column names."
            raise RowError(code, message, hint, line=1, source=source)
        if columns.count(name) > 1:
            raise RowError(
                "results.bad_row", f"column {name!r} occurs twice.", line=1, source=source
            )
    for name in ("task", "attempt"):
        if name not in columns:
            raise RowError("results.bad_row", f"column {name!r} is missing.", line=1, source=source)
    return columns


def _wrong_width(cells: list[str], columns: list[str], line: int, source: str) -> RowError:
    if len(cells) < len(columns):
        return RowError(
            "results.truncated",
            f"the row has {len(cells)} of {len(columns)} cells.",
            "Write the file completely, or leave the line out.",
            line=line,
            source=source,
        )
    return RowError(
        "results.bad_row",
        f"the row has {len(cells)} cells, the header {len(columns)}.",
        "Put double quotes around cells that contain commas.",
        line=line,
        source=source,
    )


def _csv_row(cells: dict[str, str], line: int, source: str) -> RolloutRow:
    try:
        values: dict[str, Any] = {name: cell for name, cell in cells.items() if cell != ""}
        if "attributes" in values:
            values["attributes"] = msgspec.json.decode(values["attributes"])
        # Text stays text: only the other columns may be read from their digits.
        row = msgspec.convert(values, RolloutRow, strict=False)
    except (msgspec.DecodeError, RecursionError) as error:
        code, message, hint = explain(error)
        if (cell := cells.get(message.partition(":")[0])) is not None:
            message = message.replace("`str`", repr(cell[:80]))
        for name in ("reward", "latency_ms", "cost"):
            if cells.get(name, "").strip().lower().lstrip("+-") in _NOT_FINITE:
                code, message = "results.not_finite", f"{name} is not a finite number."
                hint = "Leave the cell empty and say why in the column validity."
        raise RowError(code, message, hint, line=line, source=source) from error
    if problem := row_problem(row):
        raise RowError(*problem, line=line, source=source)
    return row
