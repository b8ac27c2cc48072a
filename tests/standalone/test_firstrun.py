from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import psycopg
import pytest
from django.db import connection

from qualityhub.accounts.models import SignInLink, Team, User
from qualityhub.engine.errors import ConflictError, MachineryError
from qualityhub.platform.heartbeats import Heartbeat, HeartbeatKind, heartbeat
from qualityhub.standalone import firstrun
from qualityhub.standalone.firstrun import parse_result

ROOT = Path(__file__).parents[2]


@pytest.mark.django_db
def test_every_start_finds_the_same_team_and_hands_out_new_links(monkeypatch):
    monkeypatch.setenv("QH_INIT_EMAIL", "ada@example.org")
    monkeypatch.setenv("QH_INIT_TEAM", "Red Lab")
    first = firstrun._run(2, sole=True)
    second = firstrun._run(1, sole=True)
    assert (first.created, second.created) == (True, False)
    assert first.email == second.email == "ada@example.org"
    assert len({*first.links, *second.links}) == 3
    assert User.objects.count() == Team.objects.count() == 1
    assert SignInLink.objects.count() == 3


@pytest.mark.django_db
def test_signs_of_life_of_the_last_run_are_forgotten_only_on_a_database_of_our_own():
    heartbeat("worker-of-last-run", HeartbeatKind.WORKER)
    firstrun._run(1, sole=False)
    assert Heartbeat.objects.count() == 1
    firstrun._run(1, sole=True)
    assert Heartbeat.objects.count() == 0


@pytest.mark.django_db
def test_one_migration_at_a_time(monkeypatch):
    monkeypatch.setattr(firstrun, "_WAIT_S", 0.2)
    parameters = connection.get_connection_params()
    parameters = {key: parameters[key] for key in ("dbname", "user", "password", "host")}
    with (
        psycopg.connect(**parameters) as other,
        other.cursor() as cursor,
    ):
        cursor.execute("SELECT pg_advisory_lock(%s)", [firstrun._LOCK_KEY])
        with pytest.raises(ConflictError) as caught, firstrun._migration_lock():
            pass
    assert caught.value.code == "up.migrating_elsewhere"
    with firstrun._migration_lock():
        pass


@pytest.mark.django_db
def test_the_lock_waits_for_a_migration_that_ends(monkeypatch):
    parameters = connection.get_connection_params()
    parameters = {key: parameters[key] for key in ("dbname", "user", "password", "host")}
    other = psycopg.connect(**parameters)
    other.execute("SELECT pg_advisory_lock(%s)", [firstrun._LOCK_KEY])
    timer = threading.Timer(0.3, other.close)
    timer.start()
    with firstrun._migration_lock():
        assert other.closed
    timer.join()


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'{"created": true}'])
def test_a_set_up_that_said_nothing_is_no_success(raw):
    with pytest.raises(MachineryError) as caught:
        parse_result(raw)
    assert caught.value.code == "up.setup_failed"


def test_the_result_survives_the_pipe():
    raw = json.dumps({"created": False, "email": "a@b.c", "links": ["/sign-in/x/"]}).encode()
    assert parse_result(raw).links == ("/sign-in/x/",)


def test_a_wrong_setting_is_one_sentence_and_no_traceback():
    done = subprocess.run(
        [sys.executable, "-m", "qualityhub.standalone.firstrun", "--result-fd", "1"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "QH_DATABASE_URL": "mysql://db/hub"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "QH_DATABASE_URL" in done.stderr
    assert done.stdout == ""
