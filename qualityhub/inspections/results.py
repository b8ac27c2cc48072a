"""Results of trials as rows: the first one wins, sealed, never shared between teams."""

from __future__ import annotations

import hashlib
import json
import logging
import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec
from django.conf import settings
from django.db.models import BinaryField, ExpressionWrapper, F

from qualityhub.engine.blobs import BlobStore, DirectoryBlobs
from qualityhub.engine.trials.codec import result_from_json, to_json
from qualityhub.engine.trials.evidence import pack_outputs
from qualityhub.engine.trials.model import Ask, Observation, Trial, TrialResult
from qualityhub.inspections.fields import unpack
from qualityhub.inspections.models import Batch, Inspection, InspectionTrial, TrialRecord
from qualityhub.platform.blobs import blobs_root

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

logger = logging.getLogger(__name__)
CHUNK = 2000


@dataclass(frozen=True, slots=True)
class Known:
    """A stored result.

    Attributes:
        pk: Primary key of its record.
        result: The result itself.
    """

    pk: int
    result: TrialResult


@dataclass(slots=True)
class Observed:
    """Everything an inspection has seen so far.

    Attributes:
        seen: Observation by ask.
        seconds: Seconds by trial key.
        run: Trials that ran for this inspection.
        cached: Trials whose results were there already.
    """

    seen: dict[Ask, Observation] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    run: int = 0
    cached: int = 0

    def take(self, key: str, asks: Sequence[Ask], result: TrialResult, *, cached: bool) -> None:
        """Add one result."""
        self.seen.update(zip(asks, result.observations, strict=True))
        self.seconds[key] = result.seconds
        if cached:
            self.cached += 1
        else:
            self.run += 1


class BatchStore:
    """The store of one batch: what is known already, and what is new, to be stored at its end."""

    def __init__(self, known: Mapping[str, Known]) -> None:
        self.known = known

    def get(self, key: str) -> TrialResult | None:
        """Return the stored result, or None."""
        found = self.known.get(key)
        return found.result if found else None

    def put(self, result: TrialResult) -> None:
        """Leave it to the batch's one transaction."""

    def keep(self, outputs: Mapping[str, bytes]) -> str:
        """Keep a trial's outputs: a blob is there, for good, before a row names it."""
        return evidence_store().put(pack_outputs(outputs, settings.QH_EVIDENCE_BYTES))


def evidence_store() -> BlobStore:
    """Return where this hub keeps evidence: apart from packages, so that no sweep meets those."""
    return DirectoryBlobs(blobs_root() / "evidence")


def results_known(team_id: int, keys: Sequence[str]) -> dict[str, Known]:
    """Return the team's sound results by key; a damaged one counts as absent."""
    found: dict[str, Known] = {}
    for chunk in _chunks(keys):
        rows = TrialRecord.objects.filter(team_id=team_id, key__in=chunk)
        for pk, key, packed, seal in rows.values_list("pk", "key", _bytes_of("result"), "seal"):
            result = _opened(key, packed, seal)
            if result is not None:
                found[key] = Known(pk, result)
    return found


def results_store(
    inspection: Inspection, batch: Batch, results: Sequence[tuple[Trial, TrialResult]]
) -> int:
    """Store results and what they mean to the inspection; returns how many were new to it.

    Runs within the fenced transaction of the batch. A result that another worker stored first is
    taken in place of ours, so that whoever derives the report again reads what we read.
    """
    failed = [(trial, result) for trial, result in results if is_failure(result)]
    good = [(trial, result) for trial, result in results if not is_failure(result)]
    pks = _records(inspection.team_id, batch, good)
    links = [
        InspectionTrial(
            inspection=inspection,
            key=trial.key,
            record_id=pks[trial.key],
            asks=_asks(trial),
            cached=result.cached,
        )
        for trial, result in good
    ]
    links += [
        InspectionTrial(
            inspection=inspection, key=trial.key, asks=_asks(trial), failure=to_json(result)
        )
        for trial, result in failed
    ]
    return _link(inspection, links)


def results_link(inspection: Inspection, known: Sequence[tuple[Trial, Known]]) -> int:
    """Note that stored results answer asks of this inspection; returns how many were new to it."""
    links = [
        InspectionTrial(
            inspection=inspection, key=trial.key, record_id=item.pk, asks=_asks(trial), cached=True
        )
        for trial, item in known
    ]
    return _link(inspection, links)


def observed(inspection: Inspection, *, whole: bool = True) -> Observed:
    """Read back everything an inspection has seen.

    Args:
        inspection: The inspection.
        whole: Whether a damaged row is an error; else it counts as not seen, and is run again.

    Raises:
        ValueError: A stored row is damaged; nothing may be derived from the rest.
    """
    state = Observed()
    rows = (
        InspectionTrial.objects.filter(inspection=inspection)
        .order_by("id")
        .values_list(
            "key", "asks", "cached", "failure", _bytes_of("record__result"), "record__seal"
        )
    )
    for key, asks, cached, failure, packed, seal in rows.iterator(CHUNK):
        result = result_from_json(failure) if failure else _opened(key, packed, seal)
        if result is None and not whole:
            logger.warning("trial_damaged", extra={"fields": {"trial": key}})
            continue
        if result is None:
            raise ValueError(f"The stored result {key} is damaged.")
        state.take(key, msgspec.convert(asks, list[Ask]), result, cached=cached)
    return state


def is_failure(result: TrialResult) -> bool:
    """Tell whether our machinery failed; such a result says nothing and is shared with nobody."""
    return any(seen.outcome == "machinery" for seen in result.observations)


def _records(
    team_id: int, batch: Batch, good: Sequence[tuple[Trial, TrialResult]]
) -> dict[str, int]:
    # In one order everywhere, so that two workers never wait for each other in a ring.
    ordered = sorted({result.key: result for _, result in good}.items())
    keys = [key for key, _ in ordered]
    rows = [
        TrialRecord(
            team_id=team_id,
            key=key,
            result=(document := to_json(replace(result, cached=False))),
            seal=_seal(document),
            seconds=result.seconds,
            evidence=result.evidence,
            batch=batch,
        )
        for key, result in ordered
    ]
    TrialRecord.objects.bulk_create(rows, batch_size=CHUNK, ignore_conflicts=True)
    sound = results_known(team_id, keys)
    for row in rows:
        if row.key not in sound:
            TrialRecord.objects.filter(team_id=team_id, key=row.key).update(
                result=row.result,
                seal=row.seal,
                seconds=row.seconds,
                evidence=row.evidence,
                batch=batch,
            )
    pks: dict[str, int] = {}
    for chunk in _chunks(keys):
        found = TrialRecord.objects.filter(team_id=team_id, key__in=chunk)
        pks.update(found.values_list("key", "pk"))
    return pks


def _link(inspection: Inspection, links: Sequence[InspectionTrial]) -> int:
    there = InspectionTrial.objects.filter(inspection=inspection)
    before = sum(
        there.filter(key__in=chunk).count() for chunk in _chunks([link.key for link in links])
    )
    InspectionTrial.objects.bulk_create(links, batch_size=CHUNK, ignore_conflicts=True)
    return len(links) - before


def _bytes_of(column: str) -> ExpressionWrapper[Any]:
    """Select a packed column as it is: one damaged row must not spoil the reading of the rest."""
    return ExpressionWrapper(F(column), output_field=BinaryField())


def _opened(key: str, packed: Any, seal: str) -> TrialResult | None:
    if packed is None:
        return None
    try:
        document = unpack(bytes(packed))
        if _seal(document) != seal:
            return None
        result = result_from_json(document)
    except (ValueError, zlib.error, msgspec.ValidationError):
        return None
    return result if result.key == key else None


def _seal(document: Any) -> str:
    text = json.dumps(document, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _asks(trial: Trial) -> list[dict[str, Any]]:
    return [to_json(ask) for ask in trial.asks]


def _chunks(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    return (keys[start : start + CHUNK] for start in range(0, len(keys), CHUNK))
