"""What a batch needs of a worker, what a worker offers, and whether the two fit."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from qualityhub.engine.digest import digest_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Needs:
    """What a batch asks of its worker; the empty value of each field asks nothing.

    Attributes:
        arch: Machine, as ``uname -m`` says it.
        provider: Sandbox provider that the world was made for.
        ownership: ``yes`` or ``no``: whether file owners are real in that world.
        engine: A container engine answers.
        gpus: So many at least.
        memory_mib: So much at least, for one batch.
        cpus: So many at least.
        python: Version specifier that one of its interpreters satisfies.
        labels: Free labels as sorted pairs of name and value.
        without: Sessions of workers that have shown that they cannot do it.
    """

    arch: str = ""
    provider: str = ""
    ownership: str = ""
    engine: bool = False
    gpus: int = 0
    memory_mib: int = 0
    cpus: int = 0
    python: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    without: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        """Whether any worker will do."""
        return self == _NOTHING

    def document(self) -> dict[str, Any]:
        """Return what is asked for as JSON, without what is not."""
        values = {**asdict(self), "without": sorted(self.without), "labels": dict(self.labels)}
        return {key: value for key, value in values.items() if value}

    @property
    def digest(self) -> str:
        """Name of exactly these needs."""
        return digest_json("needs", self.document())


_NOTHING = Needs()


@dataclass(frozen=True, slots=True)
class Offer:
    """What a worker has.

    Attributes:
        session: One run of one worker; new after a restart.
        arch: Machine, as ``uname -m`` says it.
        provider: Sandbox provider that works there; empty for none.
        ownership: Whether file owners are real in its sandbox.
        engine: Whether a container engine answers.
        gpus: Devices found.
        memory_mib: What one batch may use there.
        cpus: CPUs that its processes may use.
        pythons: Full versions of its interpreters.
        labels: Free labels.
        anything: Takes whatever waits, as a worker alone on its hub does.
    """

    session: str
    arch: str = ""
    provider: str = ""
    ownership: bool = False
    engine: bool = False
    gpus: int = 0
    memory_mib: int = 0
    cpus: int = 0
    pythons: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    anything: bool = False

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {**asdict(self), "pythons": list(self.pythons)}


def needs_from(document: Mapping[str, Any]) -> Needs:
    """Return needs from their JSON; what only a newer version can ask is met by no worker here."""
    known = {item.name for item in fields(Needs)}
    if set(document) - known:
        return Needs(labels=(("version", "newer"),))
    return Needs(
        **{
            **document,
            "without": tuple(document.get("without", ())),
            "labels": label_pairs(document.get("labels", {})),
        }
    )


def label_pairs(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return labels as needs hold them."""
    return tuple(sorted(labels.items()))


def offer_from(document: Mapping[str, Any]) -> Offer:
    """Return an offer from its JSON; what an older or newer worker says besides is left out."""
    known = {item.name for item in fields(Offer)}
    values = {key: value for key, value in document.items() if key in known}
    return Offer(**{**values, "pythons": tuple(values.get("pythons", ()))})


def unmet(needs: Needs, offer: Offer) -> list[str]:
    """Return what an offer lacks, as words that follow "needs"; empty where it fits."""
    refused = offer.session in needs.without
    lacking = [REFUSED] if refused else []
    if offer.anything:
        return lacking
    if needs.engine and not offer.engine:
        lacking.append("a container engine")
    if needs.arch and needs.arch != offer.arch:
        lacking.append(f"architecture {needs.arch}")
    if needs.provider and needs.provider != offer.provider:
        lacking.append(f"the {needs.provider} sandbox")
    elif needs.ownership and (needs.ownership == "yes") != offer.ownership:
        real = "with" if needs.ownership == "yes" else "without"
        lacking.append(f"a sandbox {real} a range of user ids")
    for name, wanted, has, unit in (
        ("GPU", needs.gpus, offer.gpus, ""),
        ("memory", needs.memory_mib, offer.memory_mib, " MiB"),
        ("CPU", needs.cpus, offer.cpus, ""),
    ):
        if wanted > has:
            more = "s" if wanted > 1 and not unit else ""
            lacking.append(f"{wanted}{unit} {'of ' if unit else ''}{name}{more}")
    if needs.python and not _has_python(needs.python, offer.pythons):
        lacking.append(f"Python {needs.python}")
    lacking += [
        f"label {name}={value}" for name, value in needs.labels if offer.labels.get(name) != value
    ]
    return lacking


REFUSED = "the very world it was prepared in"
"""What a worker lacks that has tried to build that world and made another, or none."""


def words_of(lacking: Iterable[str]) -> str:
    """Return needs as one phrase."""
    parts = list(lacking)
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def _has_python(specifier: str, versions: Iterable[str]) -> bool:
    try:
        wanted = SpecifierSet(specifier)
    except InvalidSpecifier:
        return True  # The reader says so; whoever prepares it turns it into a finding.
    return any(wanted.contains(version, prereleases=True) for version in versions)
