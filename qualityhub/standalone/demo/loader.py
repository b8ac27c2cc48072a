"""Fills an empty hub: registers, inspects, posts rollouts, opens a gate. Safe to run again.

Everything goes through the same services as REST and the dashboard; the inspections and the gate
run on the hub's workers.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from qualityhub.accounts.models import Team
from qualityhub.engine.environments.archives import pack_tree
from qualityhub.engine.errors import MachineryError
from qualityhub.gates.models import Checkpoint, EvalRun, Gate
from qualityhub.gates.services.baselines import baseline_set
from qualityhub.gates.services.gates import gate_start
from qualityhub.gates.services.ingest import rollouts_ingest, rows_from
from qualityhub.gates.services.runs import checkpoint_create, eval_run_create, eval_run_seal
from qualityhub.gates.stream import RowStream
from qualityhub.inspections.choices import OPEN, Trigger
from qualityhub.inspections.models import Inspection
from qualityhub.inspections.policies import policy_set
from qualityhub.inspections.services import inspection_start
from qualityhub.registry.models import Domain
from qualityhub.registry.services import domain_ensure, environment_ensure, version_register
from qualityhub.standalone.demo.rollouts import BASELINE, CANDIDATE, DOMAINS, demo_rows

ENVIRONMENTS = Path(__file__).parent / "environments"
ACTOR = "demo"
NAMES = {
    "3d": "3D",
    "code": "Code",
    "finance": "Finance",
    "math": "Math",
    "terminal": "Terminal",
}
"""How a person writes the domains."""
POLICY = {"name": "demo", "allow_provisional": True}
"""Rehearsed images may admit here; every page says that they are provisional."""
PATIENCE_S = 600.0
POLL_S = 0.3
BLOCK_ROWS = 2000

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DemoSummary:
    """What was loaded.

    Attributes:
        verdicts: Verdict by ``domain/environment``.
        gate: Public id of the gate.
        gate_verdict: What it decided.
        files: The rollout files, for the command line.
    """

    verdicts: dict[str, str]
    gate: str
    gate_verdict: str
    files: tuple[Path, ...]


def load_demo(team: Team, home: Path, say: Say) -> DemoSummary:
    """Load everything the demo shows and wait until the workers have judged it.

    Args:
        team: Whose hub it is.
        home: Data folder; the rollout files go below it, for the command line.
        say: Hears one line per event.

    Raises:
        MachineryError: The workers did not finish in time.
    """
    domains = {slug: _domain(team, slug) for slug in DOMAINS}
    inspections = [
        _inspect(domains[folder.parent.name], folder)
        for folder in sorted(ENVIRONMENTS.glob("*/*"))
        if folder.is_dir()
    ]
    say(f"inspecting {len(inspections)} environments of {len(domains)} domains in sandboxes")
    files = tuple(_write(home / "demo", name) for name in (BASELINE, CANDIDATE))
    runs = {path.stem: _run(team, path, domains, say) for path in files}
    verdicts = _wait_for_inspections(inspections, say)
    baseline_set(team=team, kind="last_promoted", runs=[runs[BASELINE]], reason="demo", actor=ACTOR)
    gate = _gate(team, runs)
    say(f"gate of {CANDIDATE} against {BASELINE}: {gate.verdict}")
    for row in (gate.report or {}).get("domains", ()):
        say(f"  {row['domain']:<10} {row['verdict']:<13} {row['delta'] * 100:+.1f} points")
    return DemoSummary(verdicts, gate.public_id, gate.verdict, files)


def _domain(team: Team, slug: str) -> Domain:
    domain = domain_ensure(team=team, slug=slug, name=NAMES[slug], actor=ACTOR)
    policy_set(domain=domain, table=POLICY, actor=ACTOR)
    return domain


def _inspect(domain: Domain, folder: Path) -> Inspection:
    environment = environment_ensure(domain=domain, slug=folder.name, actor=ACTOR)
    archive = io.BytesIO()
    pack_tree(folder, archive)
    archive.seek(0)
    registered = version_register(
        environment=environment, actor=ACTOR, archive=archive, filename=f"{folder.name}.tar.gz"
    )
    known = Inspection.objects.filter(version=registered.version).order_by("-pk").first()
    if known is not None:
        return known
    return inspection_start(version=registered.version, actor=ACTOR, trigger=Trigger.UPLOAD)


def _wait_for_inspections(inspections: list[Inspection], say: Say) -> dict[str, str]:
    left = {inspection.pk for inspection in inspections}
    verdicts: dict[str, str] = {}
    until = time.monotonic() + PATIENCE_S
    while left:
        ended = (
            Inspection.objects.filter(pk__in=left)
            .exclude(status__in=OPEN)
            .select_related("version__environment", "domain")
            .order_by("finished_at")
        )
        for inspection in ended:
            left.discard(inspection.pk)
            name = f"{inspection.domain.slug}/{inspection.version.environment.slug}"
            verdicts[name] = inspection.verdict or inspection.status
            say(f"  {name:<24} {verdicts[name]:<9} {_why(inspection)}")
        if time.monotonic() > until:
            raise MachineryError(
                "demo.too_slow",
                f"{len(left)} inspections are not finished after {PATIENCE_S:.0f} s.",
                "`qualityhub logs worker` says what the workers do.",
            )
        if left:
            time.sleep(POLL_S)
    return verdicts


def _why(inspection: Inspection) -> str:
    if inspection.error_message:
        return inspection.error_message
    report = inspection.report or {}
    for finding in report.get("findings", ()):
        if finding["severity"] == "error":
            return f"{finding['code']}: {finding['title'].lower()}"
    return f"{report.get('trials', {}).get('run', 0)} trials"


def _write(folder: Path, checkpoint: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{checkpoint}.ndjson"
    with path.open("wb") as file:
        file.writelines(json.dumps(row).encode() + b"\n" for row in demo_rows(checkpoint))
    return path


def _run(team: Team, path: Path, domains: dict[str, Domain], say: Say) -> EvalRun:
    name = path.stem
    checkpoint = Checkpoint.objects.filter(team=team, name=name).first()
    if checkpoint is None:
        checkpoint = checkpoint_create(team=team, name=name, lineage="demo", actor=ACTOR)
    run = EvalRun.objects.filter(checkpoint=checkpoint, name="demo").first()
    if run is None:
        run = eval_run_create(checkpoint=checkpoint, name="demo", harness={"name": "demo"})
    if run.status == "open":
        result = rollouts_ingest(
            run=run,
            stream=RowStream(rows_from(_blocks(path))),
            domains={slug: domain.pk for slug, domain in domains.items()},
        )
        say(f"stored {result.received:,} rollouts of {name}")
        eval_run_seal(run=run, actor=ACTOR)
        run.refresh_from_db()
    return run


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while lines := file.readlines(BLOCK_ROWS * 200):
            yield b"".join(lines)


def _gate(team: Team, runs: dict[str, EvalRun]) -> Gate:
    known = Gate.objects.filter(team=team, candidate__name=CANDIDATE).order_by("-pk").first()
    gate = (
        known
        or gate_start(
            team=team, candidate=[runs[CANDIDATE]], baseline=[runs[BASELINE]], actor=ACTOR
        )[0]
    )
    until = time.monotonic() + PATIENCE_S
    while not gate.verdict:
        if time.monotonic() > until:
            raise MachineryError("demo.too_slow", "The gate is not decided.", "See the worker log.")
        time.sleep(POLL_S)
        gate.refresh_from_db()
    return gate
