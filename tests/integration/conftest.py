"""A data folder that the sandbox's unprivileged user may enter."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE_S = 180

ROW = (
    '{"task_id": "T/%d", "prompt": "def f(x):\\n", "entry_point": "f", '
    '"canonical_solution": "    return x + %d\\n", '
    '"test": "def check(f):\\n    assert f(1) == %d\\n"}\n'
)


@pytest.fixture
def open_home(settings):
    home = Path(tempfile.mkdtemp(prefix="qh-test-home-", dir="/tmp"))
    home.chmod(0o755)
    settings.QH_HOME = home
    yield home
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def rows():
    """``rows(8, wrong=[3])``: a HumanEval file whose given tasks fail their own reference."""

    def make(count, wrong=()):
        return "".join(
            ROW % (n, n, n + 1 + (1 if n in wrong else 0)) for n in range(count)
        ).encode()

    return make


@pytest.fixture
def archive_of():
    """``archive_of({"a.jsonl": b"…"})`` returns a tar archive as an open file."""

    def make(files):
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:gz") as archive:
            for path, content in files.items():
                info = tarfile.TarInfo(path)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        data.seek(0)
        return data

    return make


@pytest.fixture
def upload(environment, open_home, archive_of):
    """``upload(rows(3))`` registers a HumanEval file as a version."""
    from qualityhub.registry.services import version_register

    def make(data):
        return version_register(
            environment=environment,
            actor="owner@example.org",
            archive=archive_of({"tasks.jsonl": data}),
            filename="tasks.tar.gz",
        ).version

    return make


@pytest.fixture
def broker(open_home):
    from qualityhub.standalone.broker import EmbeddedValkey

    server = EmbeddedValkey(open_home / "valkey")
    yield server.start()
    server.stop()


@pytest.fixture
def spawn(open_home):
    """``spawn(command, cwd=…, env=…)`` starts a worker in a process group that ends with the test."""
    started = []
    with (open_home / "workers.log").open("ab") as log:

        def start(command, **options):
            process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, **options
            )
            started.append(process)
            return process

        yield start
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.fixture
def start_worker(database_url, broker, open_home, spawn):
    """``start_worker("a")`` starts a worker with one process and a scheduler, in its own group."""
    from django.db import connection

    url = urlsplit(database_url)._replace(path=f"/{connection.settings_dict['NAME']}").geturl()
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(open_home),
        "PYTHONPATH": str(ROOT),
        "QH_HOME": str(open_home),
        "QH_DATABASE_URL": url,
        "QH_BROKER_URL": broker,
        "QH_SECRET_KEY": "for-tests-" * 5,
        "QH_LEASE_SECONDS": "5",
    }

    def start(name):
        words = ("--app", "workers.app", "--skip-checks", "worker", "--beat", "--concurrency", "1")
        command = [sys.executable, "-m", "celery", *words, "--hostname", f"{name}@%h"]
        return spawn(command, cwd=open_home, env=environ)

    return start


@pytest.fixture
def wait_for(open_home):
    """``wait_for(condition)`` returns what it returns once that is true; a worker's log is shown else."""

    def wait(what):
        deadline = time.monotonic() + PATIENCE_S
        while not (found := what()):
            if time.monotonic() > deadline:
                log = (open_home / "workers.log").read_text()
                pytest.fail("it did not happen in time\n" + log[-4000:])
            time.sleep(0.05)
        return found

    return wait
