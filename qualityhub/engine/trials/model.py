"""Words of the trial room: what is asked, what runs, what was seen.

A rule *asks* for what it wants to see of one task. The family's driver cuts asks into *trials*
(one sandboxed execution each, possibly answering many asks). A trial's result is read back into
one *observation* per ask. Rules judge observations and never see how they were made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from qualityhub.engine.digest import digest_json


@dataclass(frozen=True, slots=True, order=True)
class Variation:
    """What is changed around a trial. The default is the clean baseline.

    Attributes:
        hash_seed: ``PYTHONHASHSEED``.
        seed: Seed passed to a seedable environment.
        clock: Wall clock: ``+365d`` from now, or ``@2028-02-29 23:59:50``; empty for the true one.
        timezone: ``TZ``; empty for UTC.
        locale: ``LANG`` and ``LC_ALL``; empty for C.UTF-8.
        folder: Working folder in place of the usual one.
        home: ``HOME`` in place of the usual one.
        user: Name in ``USER`` and ``LOGNAME``.
        hostname: Name of the world.
        umask: File mode mask.
        cpus: CPUs that the trial may use and sees; 0 for all.
        load: Busy processes beside it, inside its world.
        order: ``reversed``: files are created, and so often listed, in the opposite order.
        noise: Unrelated variables in the environment.
        network: Whether the world has a network.
        manner: How the program calls: ``reversed`` cases, ``repeated`` in one process,
            ``interleaved`` instances, from a ``thread``, an ``executor``, a ``daemon``, ``many``.
    """

    hash_seed: int = 0
    seed: int = 0
    clock: str = ""
    timezone: str = ""
    locale: str = ""
    folder: str = ""
    home: str = ""
    user: str = ""
    hostname: str = ""
    umask: int = 0o022
    cpus: int = 0
    load: int = 0
    order: str = ""
    noise: int = 0
    network: bool = False
    manner: str = ""

    def changes(self) -> dict[str, int | str | bool]:
        """Return the fields that differ from the baseline, by name."""
        return {
            item.name: value
            for item in fields(self)
            if (value := getattr(self, item.name)) != item.default
        }


BASELINE = Variation()


@dataclass(frozen=True, slots=True, order=True)
class Ask:
    """One thing a rule wants to see.

    Attributes:
        task: Task id.
        probe: Submission or script: ``oracle``, ``nop``, ``malformed:<name>``, ``trace``.
        variation: What is changed around it.
        repeat: Index of the repetition; a repeat is never a cache hit of another.
        cold: Asked of a world of its own, started for this alone, never of a fork server.
    """

    task: str
    probe: str
    variation: Variation = BASELINE
    repeat: int = 0
    cold: bool = False


Outcome = Literal[
    "reward",
    "no_reward",
    "crashed",
    "timeout",
    "killed",
    "no_reference",
    "machinery",
    "unmeasured",
]
"""``reward``: a reward came back (it may be any JSON value). ``no_reward``: the program ended
without one. ``crashed``: the verifier or environment raised. ``timeout``: the wall clock ended it.
``killed``: a limit or a signal ended it. ``no_reference``: there is no reference to submit.
``machinery``: our own parts failed; never stored, never judged. ``unmeasured``: it was not run
(a budget ended, or others hang on the same answer); never judged."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What one ask showed.

    Attributes:
        outcome: See :data:`Outcome`.
        reward: As the verifier gave it: number, or text such as ``"nan"`` for what JSON cannot say,
            or the ``repr`` of what is no number (then ``reward_type`` says what it was).
        reward_type: ``number`` for int and float, ``bool``, else the type's name.
        detail: Last lines that explain the outcome (traceback, stderr); at most 2,000 characters.
        facts: Family-specific: ``trace_digest``, ``steps``, ``first_rewards``, ``missing_module``…
        trial: Key of the trial it came from.
        served: A fork server made its world; a finding needs a world started for it alone.
    """

    outcome: Outcome
    reward: float | str | None = None
    reward_type: str = "number"
    detail: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    trial: str = ""
    served: bool = False


@dataclass(frozen=True, slots=True)
class Trial:
    """One sandboxed execution, named by the digest of all that goes into it.

    Attributes:
        program: In-sandbox program (module name below ``trials/programs``).
        asks: What it answers, in order.
        payload: JSON document the program reads from stdin.
        trees: Digest of every tree mounted, by target path.
        variation: Applied to the whole process.
        repeat: Repetition index.
        generation: Raised by an audit that wants fresh results.
        world: Digest of the world it runs in (base, layer, interpreter, program version, limits).
        wall_s: Wall-clock limit in seconds.
        cold: Never run by a fork server. A result from there and a cold one are different facts.
    """

    program: str
    asks: tuple[Ask, ...]
    payload: Mapping[str, Any]
    trees: Mapping[str, str]
    variation: Variation
    repeat: int
    generation: int
    world: str
    wall_s: float
    cold: bool = False
    _key: str = field(default="", init=False, repr=False, compare=False)

    @property
    def key(self) -> str:
        """Digest of everything that can influence the result."""
        if not self._key:
            # A payload may be large, and the key is asked for several times.
            object.__setattr__(self, "_key", self._digest())
        return self._key

    def _digest(self) -> str:
        return digest_json(
            "trial",
            {
                "program": self.program,
                "payload": dict(self.payload),
                "trees": dict(self.trees),
                "variation": self.variation.changes(),
                "repeat": self.repeat,
                "generation": self.generation,
                "world": self.world,
                "wall_s": str(self.wall_s),
                "cold": self.cold,
            },
        )


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What one trial showed, small enough for a database row.

    Attributes:
        key: The trial's key.
        observations: One per ask, in the order of the trial's asks.
        seconds: Wall-clock seconds.
        cpu_seconds: CPU seconds of the tree.
        peak_memory_bytes: Largest resident size, 0 where unknown.
        exit_code: Of the program, None when a signal ended it.
        stdout: Text preview, at most 4,000 characters.
        stderr: Text preview, at most 4,000 characters.
        cached: Whether it came from the store.
        signal: That ended the program, or None.
        timed_out: The wall-clock limit ended it.
        out_of_memory: The memory limit ended it or a child of it.
        dropped_bytes: Output beyond the sandbox's cap.
        stdout_bytes: How much there was, our own lines not counted.
        stderr_bytes: How much there was.
        evidence: Name of the blob with all outputs; empty where the previews hold them whole.
    """

    key: str
    observations: tuple[Observation, ...]
    seconds: float
    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    cached: bool = False
    signal: int | None = None
    timed_out: bool = False
    out_of_memory: bool = False
    dropped_bytes: int = 0
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class World:
    """What the environment's trials run in, once prepared.

    Attributes:
        status: ``ready``; ``failed``: the environment's own fault (a dependency does not resolve,
            the image does not build), a finding; ``unavailable``: this host cannot (no provider,
            no engine for this Dockerfile), behavioural rules SKIP.
        digest: Of base, layer, interpreter, program version: goes into every trial key.
        reason: For ``failed`` and ``unavailable``: one sentence.
        would_need: For ``unavailable``: what would make it possible.
        provisional: True for rehearsed images and unmapped ownership.
        provisional_reason: Why.
        provider: Sandbox provider.
        python: Full version of the interpreter that runs the programs.
        layer: Digest of the dependency layer, empty where there is none.
        lock: Locked requirements, one ``name==version`` each.
        log: Tail of the build log, at most 8,000 characters.
        paths: Host paths by role (``base``, ``layer``): of this host alone, never in a digest.
        base: Digest of the exported image that is ``/``; empty for the rehearsal base.
        files: Digest of the files that a rehearsed image lays over the base; empty for none.
        env: Variables that the image sets.
        workdir: Working directory of the image; empty where it says none.
        user: User that the image names; empty for root.
        interpreter: Path inside the world of the Python that sees the layer; empty for none.
        become: Leading words of every command: how it becomes the image's user; none for root.
        entrypoint: Program of the image that prepares each container of it; none for most.
        entry_waits: Whether it hands over to the command it is given, so that commands wait for it;
            else it stays in the foreground and they start beside it.
        pins: Keep the parts of the world in the store while it is used: of this process alone.
    """

    status: Literal["ready", "failed", "unavailable"]
    digest: str = ""
    reason: str = ""
    would_need: str = ""
    provisional: bool = False
    provisional_reason: str = ""
    provider: str = ""
    python: str = ""
    layer: str = ""
    lock: tuple[str, ...] = ()
    log: str = ""
    paths: Mapping[str, str] = field(default_factory=dict)
    base: str = ""
    files: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = ""
    user: str = ""
    interpreter: str = ""
    become: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    entry_waits: bool = False
    pins: tuple[Any, ...] = field(default=(), compare=False, repr=False)
