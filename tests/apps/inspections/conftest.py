"""A bench whose trials are scripted: rows and leases are real, the sandbox is not."""

from __future__ import annotations

import io
import tarfile
import threading

import pytest
from django.db import connection

from qualityhub.engine.trials.model import Observation, TrialResult, World

ROW = (
    '{"task_id": "T/%d", "prompt": "def f(x):\\n", "entry_point": "f", '
    '"canonical_solution": "    return x + %d\\n", '
    '"test": "def check(f):\\n    assert f(1) == %d\\n"}\n'
)


class Script:
    """What the scripted sandbox does; tests change it.

    Attributes:
        wrong: Tasks whose reference fails.
        broken: Trial keys for which our machinery fails, so many times.
        during: Called before every trial.
        ran: Keys of the trials that ran.
    """

    def __init__(self):
        self.wrong = set()
        self.broken = {}
        self.during = None
        self.ran = []

    def observe(self, trial, ask):
        good = ask.probe == "oracle" and ask.task not in self.wrong
        return Observation(
            "reward", 1.0 if good else 0.0, detail="said \0 and \ud800", trial=trial.key
        )


class ScriptedRunner:
    script = Script()

    def __init__(self, environment, worlds, sandbox, store, home, **options):
        self.store = store
        self.sandbox = sandbox

    def prepare(self, trials):
        return trials

    def close(self):
        pass

    def stop(self, running):
        for future in running:
            future.cancel()

    def known(self, trial):
        from dataclasses import replace

        known = self.store.get(trial.key)
        return None if known is None else replace(known, cached=True)

    def run(self, trial):
        script = self.script
        if script.during is not None:
            try:
                script.during(trial)
            finally:
                if threading.current_thread() is not threading.main_thread():
                    connection.close()
        script.ran.append(trial.key)
        if script.broken.get(trial.key, 0) > 0:
            script.broken[trial.key] -= 1
            failure = Observation("machinery", detail="the disk was full", trial=trial.key)
            return TrialResult(trial.key, (failure,) * len(trial.asks), 0.0)
        seen = tuple(script.observe(trial, ask) for ask in trial.asks)
        return TrialResult(trial.key, seen, seconds=0.25, exit_code=0)


class NoSandbox:
    name = "scripted"

    def capability(self):
        from qualityhub.engine.sandbox.port import Capability

        return Capability("scripted", usable=True, ownership=True)

    def close(self):
        pass


@pytest.fixture
def script(monkeypatch):
    from qualityhub.inspections import bench

    script = Script()
    monkeypatch.setattr(ScriptedRunner, "script", script)
    monkeypatch.setattr(bench, "TrialRunner", ScriptedRunner)
    monkeypatch.setattr(bench, "select_sandbox", lambda kind, home: NoSandbox())
    monkeypatch.setattr(
        bench,
        "prepare_worlds",
        prepared,
    )
    monkeypatch.setattr(bench, "locate_world", lambda document, home: bench_world(document))
    return script


def prepared(environment, sandbox, home, log, reason):
    log("building \0 things")
    return {"": World("ready", digest="world", provider="scripted", python="3.11.9")}


def bench_world(document):
    from qualityhub.engine.trials.worlds import world_from_json

    return world_from_json(document)


@pytest.fixture
def bench(script):
    from qualityhub.inspections.bench import Bench

    bench = Bench("worker-1")
    yield bench
    bench.close()


@pytest.fixture
def upload(environment, db):
    """``upload(4)`` registers a HumanEval version with so many tasks."""
    from qualityhub.registry.services import version_register

    def make(count=4, shift=0, environment=environment):
        rows = "".join(ROW % (n, n, n + 1 + shift) for n in range(count)).encode()
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:gz") as archive:
            info = tarfile.TarInfo("tasks.jsonl")
            info.size = len(rows)
            archive.addfile(info, io.BytesIO(rows))
        data.seek(0)
        return version_register(
            environment=environment, actor="owner@example.org", archive=data, filename="t.tar.gz"
        ).version

    return make


@pytest.fixture
def start():
    from qualityhub.inspections.services import inspection_start

    def make(version, **fields):
        return inspection_start(version=version, actor="owner@example.org", **fields)

    return make


@pytest.fixture
def finish(bench):
    """``finish(inspection)`` drains the queue and returns the inspection as it then is."""
    from qualityhub.inspections.draining import drain
    from qualityhub.inspections.models import Inspection

    def run(inspection):
        while drain(bench, 60):
            pass
        return Inspection.objects.select_related("job", "version").get(pk=inspection.pk)

    return run


@pytest.fixture
def judge(start, finish):
    """``judge(version)`` starts an inspection and returns it ended."""

    def run(version, **fields):
        return finish(start(version, **fields))

    return run
