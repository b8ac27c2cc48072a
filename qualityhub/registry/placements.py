"""Where versions may be prepared and run: read from their files, corrected by a later upload."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django.dispatch import Signal

from qualityhub.engine.environments.codec import environment_from_json
from qualityhub.engine.environments.placement import placement_of
from qualityhub.engine.errors import QualityHubError
from qualityhub.platform.audit import audit
from qualityhub.platform.blobs import blob_store
from qualityhub.platform.text import storable_json
from qualityhub.registry.models import EnvironmentVersion
from qualityhub.registry.packages import store_parsed

if TYPE_CHECKING:
    from qualityhub.engine.environments.model import Environment

logger = logging.getLogger(__name__)
placement_changed = Signal()
"""Sent with ``version`` once its placement was corrected: plans made before are out of date."""


def placement_known(version: EnvironmentVersion) -> dict[str, Any]:
    """Return a version's placement, read from its files where no row says it yet.

    Where they cannot be read it asks nothing, and the next call looks again.
    """
    if version.placed or version.placement:
        return dict(version.placement)
    try:
        placement = _placement(_parsed(version))
    except (QualityHubError, OSError, ValueError, LookupError, TypeError) as error:
        fields = {"version": version.public_id, "error": str(error)}
        logger.warning("placement_unknown", extra={"fields": fields})
        return {}
    _store(version, placement=placement)
    return placement


def placement_correct(version: EnvironmentVersion, parsed: Environment, *, actor: str) -> bool:
    """Take over what the same package, uploaded again, says of its place; False where nothing new.

    Args:
        version: Known by its digest, of which labels are no part.
        parsed: What was uploaded now.
        actor: Who uploads, as text.
    """
    before, after = placement_known(version), _placement(parsed)
    if before == after:
        return False
    fields: dict[str, Any] = {"placement": after}
    try:
        known = _parsed(version)
    except (QualityHubError, OSError, ValueError, LookupError, TypeError):
        # Whoever reads the package says so; the place is right all the same.
        logger.warning("parsed_unreadable", extra={"fields": {"version": version.public_id}})
    else:
        # The rest stays as the stored archive has it: paths may differ in what came now.
        entry = {name: value for name, value in known.entry.items() if name != "labels"}
        if "labels" in parsed.entry:
            entry["labels"] = parsed.entry["labels"]
        fields["parsed_sha256"] = store_parsed(replace(known, entry=entry))
    _store(version, **fields)
    team = version.environment.team
    audit(
        actor=actor,
        action="version.placement_changed",
        team=team.public_id,
        object_id=version.public_id,
        object_text=str(version.environment),
        before=before,
        after=after,
    )
    placement_changed.send(sender=EnvironmentVersion, version=version)
    return True


def _placement(parsed: Environment) -> dict[str, Any]:
    document: Any = storable_json(placement_of(parsed))
    return dict(document)


def _parsed(version: EnvironmentVersion) -> Environment:
    return environment_from_json(json.loads(blob_store().read(version.parsed_sha256)), None)


def _store(version: EnvironmentVersion, **fields: Any) -> None:
    EnvironmentVersion.objects.filter(pk=version.pk).update(**fields, placed=True)
    version.placed = True
    for name, value in fields.items():
        setattr(version, name, value)
