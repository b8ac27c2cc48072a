"""Shared fixtures: a real PostgreSQL, four personas, and clients that speak for them."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# On a busy host drawing values takes long; that says nothing about what is tested.
settings.register_profile("any-host", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-host")

READ_SCOPES = ("environments:read", "admission:read", "gates:read")


def pytest_make_parametrize_id(val, argname):
    """Name bytes by their argument: packed ones hold the time, and parallel runs must agree."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture(scope="session")
def database_url():
    """A PostgreSQL server's address: ``QH_TEST_DATABASE_URL``, else one started for this run."""
    given = os.environ.get("QH_TEST_DATABASE_URL")
    if given:
        yield given
        return
    from qualityhub.standalone.postgres import EmbeddedPostgres

    # Not pytest's own folder: it is closed to the unprivileged id that the server takes under root.
    folder = Path(tempfile.mkdtemp(prefix="qh-test-pg-", dir="/tmp"))
    server = EmbeddedPostgres(
        folder,
        settings={"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"},
    )
    try:
        yield server.start()
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(database_url, request):
    """Point Django at the server of this run; one database per parallel process."""
    from django.db import connections

    from qualityhub.env import database_from_url

    worker = getattr(request.config, "workerinput", {}).get("workerid", "")
    config = connections.settings["default"]
    config.update(database_from_url(database_url))
    config["CONN_MAX_AGE"] = 0
    config["TEST"]["NAME"] = f"test_qualityhub_{worker or 'main'}_{os.getpid()}"


@dataclass
class SentTasks:
    """What would have gone to the broker."""

    sent: list[tuple[str, tuple[Any, ...], str]] = field(default_factory=list)

    def names(self) -> list[str]:
        return [name for name, _, _ in self.sent]


@pytest.fixture(autouse=True)
def sent_tasks(monkeypatch):
    """Nothing leaves the process: tasks sent after commit are kept here as (name, args, queue)."""
    from qualityhub.platform import queue

    tasks = SentTasks()

    def send(task, args, queue):
        tasks.sent.append((task, tuple(args), queue))
        return True

    monkeypatch.setattr(queue, "send", send)
    return tasks


@pytest.fixture(autouse=True)
def qh_home(settings, tmp_path):
    """The data folder of one test."""
    home = tmp_path / "qh-home"
    settings.QH_HOME = home
    return home


@pytest.fixture
def celery_app(settings):
    """The workers' Celery application, with every task module imported."""
    settings.QH_SECRET_KEY_IS_EPHEMERAL = False
    from workers.app import app

    app.loader.import_default_modules()
    return app


@pytest.fixture
def make_user(db):
    """``make_user("ada@example.org", team, "admin")`` returns a person, in the team where one is given."""
    from qualityhub.accounts.choices import Role
    from qualityhub.accounts.services import membership_set, user_create

    def make(email, team=None, role="viewer"):
        user = user_create(email=email)
        if team is not None:
            membership_set(team=team, user=user, role=Role(role))
        return user

    return make


@pytest.fixture
def team(db):
    from qualityhub.accounts.services import team_create

    return team_create(name="Red Lab")


@pytest.fixture
def other_team(db):
    from qualityhub.accounts.services import team_create

    return team_create(name="Blue Lab")


@pytest.fixture
def owner(make_user, team):
    """Administers the team."""
    return make_user("owner@example.org", team, "admin")


@pytest.fixture
def contributor(make_user, team):
    return make_user("contributor@example.org", team, "contributor")


@pytest.fixture
def teammate(make_user, team):
    """Sees the team's things, may change none."""
    return make_user("teammate@example.org", team, "viewer")


@pytest.fixture
def outsider(make_user, other_team):
    """Administers another team and must see nothing of this one."""
    return make_user("outsider@example.org", other_team, "admin")


@pytest.fixture
def make_token(db):
    """``make_token(user, team, scopes)`` returns the plain text of a token; all scopes by default."""
    from qualityhub.accounts.choices import Scope
    from qualityhub.accounts.services import token_create

    def make(user, team, scopes=None):
        chosen = list(scopes or [scope for scope in Scope.values if scope != "admin"])
        _, plain = token_create(user=user, team=team, name="for tests", scopes=chosen)
        return plain

    return make


@pytest.fixture
def make_api(make_token):
    """``make_api(user, team, scopes)`` returns an API client with such a token."""
    from rest_framework.test import APIClient

    def make(user, team, scopes=None):
        client = APIClient()
        client.credentials(HTTP_AUTHORIZATION=f"Bearer {make_token(user, team, scopes)}")
        return client

    return make


@pytest.fixture
def owner_api(make_api, owner, team):
    return make_api(owner, team)


@pytest.fixture
def teammate_api(make_api, teammate, team):
    return make_api(teammate, team)


@pytest.fixture
def outsider_api(make_api, outsider, other_team):
    return make_api(outsider, other_team)


@pytest.fixture
def read_api(make_api, owner, team):
    """The owner's token that may only read."""
    return make_api(owner, team, READ_SCOPES)


@pytest.fixture
def anonymous_api():
    from rest_framework.test import APIClient

    return APIClient()


@pytest.fixture
def domain(team):
    from qualityhub.registry.models import Domain

    return Domain.objects.create(team=team, slug="code", name="Code")


@pytest.fixture
def environment(team, domain):
    from qualityhub.registry.models import Environment

    return Environment.objects.create(team=team, domain=domain, slug="sums", name="Sums")


@pytest.fixture
def make_version(environment):
    """``make_version(digest=…, tasks=[…])`` stores a version's rows without any files."""
    from qualityhub.registry.models import EnvironmentVersion, Task

    counter = iter(range(1, 10_000))

    def make(*, environment=environment, digest=None, tasks=("t1", "t2"), **fields):
        digest = digest or f"qh1:{next(counter):064x}"
        version = EnvironmentVersion.objects.create(
            environment=environment,
            digest=digest,
            adapter="gymnasium",
            family="episode",
            task_count=len(tasks),
            source_kind="reference",
            source="gymnasium:CartPole-v1",
            created_by="owner@example.org",
            **fields,
        )
        Task.objects.bulk_create(
            Task(
                version=version,
                task_id=task_id,
                position=position,
                digest=f"qh1:{task_id}:{digest[-8:]}",
                layers={"statement": f"qh1:s-{task_id}"},
            )
            for position, task_id in enumerate(tasks)
        )
        return version

    return make


@pytest.fixture
def version(make_version):
    return make_version()


@pytest.fixture
def make_trial(db):
    """``make_trial(inspection, {"stdout": b"…"})`` stores a trial that answers it, with outputs."""
    from dataclasses import replace

    from qualityhub.engine.trials.model import Ask, Observation, Trial, TrialResult, Variation
    from qualityhub.inspections.results import BatchStore, results_store

    counter = iter(range(1, 10_000))

    def make(inspection, outputs=None, *, observation=None, asks=None, **changes):
        number = next(counter)
        asks = asks or (Ask("t1", "oracle", repeat=number),)
        trial = Trial(
            program="function",
            asks=asks,
            payload={},
            trees={},
            variation=Variation(),
            repeat=number,
            generation=0,
            world="w",
            wall_s=5.0,
        )
        result = TrialResult(
            key=trial.key,
            observations=(replace(observation or Observation("reward", 1.0), trial=trial.key),)
            * len(asks),
            seconds=0.5,
            cpu_seconds=0.25,
            peak_memory_bytes=2**20,
            exit_code=0,
            evidence=BatchStore({}).keep(outputs) if outputs else "",
        )
        result = replace(result, **changes)
        results_store(inspection, None, [(trial, result)])
        return result

    return make
