"""What a trial left behind: its whole outputs and collected files, cut to a cap and packed.

Most trials say nothing, or little that the previews of their result hold whole; those cost
nothing more. What is longer, binary or a file becomes one blob of all outputs. Resource use and
the way the program ended stay in the result: equal outputs of repeated trials are one blob.

Outputs may quote hidden tests and answers: all of it is of the class ``answer_key``. It is shown
to the team and is part of no export.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from qualityhub.engine.sandbox.port import MIB, Completed
from qualityhub.engine.trials.codec import ask_to_evidence, to_json
from qualityhub.engine.trials.drivers.base import tail
from qualityhub.engine.trials.model import Ask, Observation, TrialResult

PREVIEW = 4000
"""Bytes of each stream that a result holds."""
EVIDENCE_BYTES = MIB
"""Bytes of one trial's outputs that are kept, before compression."""
ANSWER_KEY = "answer_key"
TRIAL_SCHEMA, EVIDENCE_SCHEMA = "qualityhub.trial/1", "qualityhub.evidence/1"
WORDS = {
    "/qh/out/solve.log": "output of the reference solution",
    "/qh/out/solve.exit": "exit status of the reference solution",
    "/qh/out/test.log": "output of the verifier",
    "/qh/out/test.exit": "exit status of the verifier",
}


@dataclass(frozen=True, slots=True)
class Part:
    """One output.

    Attributes:
        name: ``stdout``, ``stderr``, or the path of a collected file.
        size: Bytes there were.
        head: The first that are kept; all of them where nothing was cut.
        tail: The last that are kept.
    """

    name: str
    size: int
    head: bytes
    tail: bytes = b""

    @property
    def gap(self) -> int:
        """Bytes left out between head and tail."""
        return self.size - len(self.head) - len(self.tail)


def result_of(
    key: str,
    observations: tuple[Observation, ...],
    completed: Completed,
    nonce: str,
    keep: Callable[[Mapping[str, bytes]], str],
) -> TrialResult:
    """Return the result of a trial, its outputs kept where the previews do not hold all of them.

    Args:
        key: The trial's key.
        observations: What was read out of the command's end.
        completed: How the command ended.
        nonce: Begins the lines of our own protocol, which are left out.
        keep: Stores outputs and returns the name of their blob.
    """
    mark = nonce.encode()
    stdout, stderr = _foreign(completed.stdout, mark), _foreign(completed.stderr, mark)
    outputs: dict[str, bytes] = {}
    if completed.collected or not (_previewed(stdout) and _previewed(stderr)):
        streams = {"stdout": stdout, "stderr": stderr}
        outputs = {name: data for name, data in streams.items() if data}
        outputs.update(completed.collected)
    return TrialResult(
        key=key,
        observations=observations,
        seconds=round(completed.wall_s, 4),
        cpu_seconds=round(completed.cpu_s, 4),
        peak_memory_bytes=completed.peak_memory_bytes,
        exit_code=completed.exit_code,
        stdout=tail(stdout, PREVIEW),
        stderr=tail(stderr, PREVIEW),
        signal=completed.signal,
        timed_out=completed.timed_out,
        out_of_memory=completed.out_of_memory,
        dropped_bytes=completed.dropped_bytes,
        stdout_bytes=len(stdout),
        stderr_bytes=len(stderr),
        evidence=keep(outputs) if outputs else "",
    )


def pack_outputs(outputs: Mapping[str, bytes], most: int) -> bytes:
    """Return outputs as one document of at most about ``most`` bytes.

    Small ones are kept whole, the large ones share the rest; of each its beginning and its end.
    """
    left, kept = most, {}
    by_size = sorted(outputs.items(), key=lambda item: (len(item[1]), item[0]))
    for index, (name, data) in enumerate(by_size):
        share = min(len(data), left // (len(by_size) - index))
        left -= share
        kept[name] = _part(name, data, share)
    return _ENCODER.encode([kept[name] for name in outputs])


def unpack_outputs(document: bytes | None) -> tuple[Part, ...] | None:
    """Return the parts of a document, or None where it is missing or none of ours."""
    if document is None:
        return None
    try:
        return msgspec.msgpack.decode(document, type=tuple[Part, ...])
    except msgspec.MsgspecError:
        return None


def trial_document(result: TrialResult, asks: Sequence[Ask] = ()) -> dict[str, Any]:
    """Return a result as people and programs read it, without its outputs.

    Args:
        result: How it ended.
        asks: What its observations answer, in their order; where it is not known, each says null.
    """
    known = [ask_to_evidence(ask) for ask in asks] if len(asks) == len(result.observations) else []
    return {
        "schema": TRIAL_SCHEMA,
        "trial": result.key,
        "class": ANSWER_KEY,
        "observations": [
            {
                "ask": known[index] if known else None,
                **{name: value for name, value in to_json(seen).items() if name != "trial"},
            }
            for index, seen in enumerate(result.observations)
        ],
        "ended": {
            "exit_code": result.exit_code,
            "signal": result.signal,
            "timed_out": result.timed_out,
            "out_of_memory": result.out_of_memory,
        },
        "resources": {
            "seconds": result.seconds,
            "cpu_seconds": result.cpu_seconds,
            "peak_memory_bytes": result.peak_memory_bytes,
            "dropped_bytes": result.dropped_bytes,
        },
        "output_bytes": {"stdout": result.stdout_bytes, "stderr": result.stderr_bytes},
    }


def evidence_document(result: TrialResult, parts: Sequence[Part] | None) -> dict[str, Any]:
    """Return a trial's outputs as text; bytes that are no UTF-8 are written as escapes.

    Args:
        result: The trial's result.
        parts: Its unpacked evidence; None where it has none, or has it no longer.
    """
    state = "whole" if parts is None else "kept"
    if parts is None:
        parts = _previews(result)
        if result.evidence or any(part.gap for part in parts):
            state = "preview"
    return {
        "schema": EVIDENCE_SCHEMA,
        "trial": result.key,
        "class": ANSWER_KEY,
        "state": state,
        "dropped_bytes": result.dropped_bytes,
        "parts": [
            {
                "name": part.name,
                "what": WORDS.get(part.name, ""),
                "bytes": part.size,
                "left_out": part.gap,
                "head": _text(part.head),
                "tail": _text(part.tail),
            }
            for part in parts
        ],
    }


def _part(name: str, data: bytes, share: int) -> Part:
    if share == len(data):
        return Part(name, len(data), data)
    first = share // 3
    return Part(name, len(data), data[:first], data[len(data) - (share - first) :])


def _previews(result: TrialResult) -> list[Part]:
    parts = []
    streams = (
        ("stdout", result.stdout, result.stdout_bytes),
        ("stderr", result.stderr, result.stderr_bytes),
    )
    for name, text, size in streams:
        data = text.encode("utf-8", "backslashreplace")
        if data:
            parts.append(Part(name, max(size, len(data)), b"", data))
    return parts


def _foreign(data: bytes, mark: bytes) -> bytes:
    if mark not in data:
        return data
    return b"".join(line for line in data.splitlines(keepends=True) if not line.startswith(mark))


def _previewed(data: bytes) -> bool:
    """Tell whether a preview says all of it."""
    if len(data) > PREVIEW or b"\0" in data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


_ENCODER = msgspec.msgpack.Encoder()
