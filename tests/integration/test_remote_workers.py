"""Workers as on other hosts: own user, data folder and network; one blob store, sockets of the hub.

As root each worker gets an unprivileged user and a network namespace in which there is nothing; it
reaches database and broker by unix sockets of proxies. Without root they are at least processes
with folders of their own.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit, urlunsplit

import pytest

from qualityhub.engine.inspect import InspectOptions, inspect_source
from qualityhub.engine.policy import AdmissionPolicy
from qualityhub.inspections.models import Batch, Inspection, InspectionTrial, Worker
from qualityhub.inspections.services import inspection_start
from qualityhub.registry.services import version_register

pytestmark = pytest.mark.django_db(transaction=True)
ROOT = Path(__file__).parents[2]
USERS = {"a": 61_001, "b": 61_002}
GROUP = 61_000
TASKS = 40


class Proxy:
    """A unix socket that leads to another one."""

    def __init__(self, path, target):
        self.target = str(target)
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(str(path))
        Path(path).chmod(0o666)
        self.server.listen(64)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with suppress(OSError):
            while True:
                near, _ = self.server.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(self.target)
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self.pump, args=pair, daemon=True).start()

    @staticmethod
    def pump(source, sink):
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        # The other direction closes them too; a socket does not mind.
        source.close()

    def close(self):
        # Shut down first: a thread that waits in accept() keeps a closed socket open.
        with suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()


def python_for(uid, extra):
    """Return a Python with our packages that a user can start, or an empty list."""
    for python in (sys.executable, "/usr/bin/python3"):
        words = [python, "-c", "import celery, django, kombu.transport.redis, psycopg, zstandard"]
        with suppress(OSError):
            environ = libraries(extra)
            done = subprocess.run(words, **as_user(uid), env=environ, cwd="/", check=False)
            if done.returncode == 0:
                return [python]
    return []


def as_user(uid):
    return {} if uid is None else {"user": uid, "group": uid, "extra_groups": [GROUP]}


def libraries(extra):
    site = next(path for path in sys.path if path.endswith("site-packages"))
    return {
        "PYTHONPATH": f"{ROOT}:{site}:{extra}",
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
    }


@pytest.fixture(scope="module")
def extra():
    """What the broker's client wants of a Python before 3.11.3, and this one has."""
    folder = Path(tempfile.mkdtemp(prefix="qh-test-extra-", dir="/tmp"))
    folder.chmod(0o755)
    (folder / "async_timeout.py").write_text("from asyncio import timeout\n")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def apart(extra):
    """What separates the workers here: (users, network)."""
    users = os.geteuid() == 0 and all(python_for(uid, extra) for uid in USERS.values())
    alone = ["unshare", "--net", "true"]
    network = os.geteuid() == 0 and subprocess.run(alone, check=False).returncode == 0
    return users, network


@pytest.fixture
def hosts(apart, settings):
    """A folder with the shared blob store, the hub's sockets and one closed folder per worker."""
    root = Path(tempfile.mkdtemp(prefix="qh-test-hosts-", dir="/tmp"))
    root.chmod(0o755)
    blobs, sockets = root / "blobs", root / "sockets"
    blobs.mkdir()
    sockets.mkdir(mode=0o755)
    for name, uid in USERS.items():
        home = root / name
        home.mkdir()
        home.chmod(0o755 if os.geteuid() == 0 and not apart[0] else 0o700)
        if apart[0]:
            os.chown(home, uid, uid)
    if apart[0]:
        os.chown(blobs, 0, GROUP)
        blobs.chmod(0o2770)
    settings.QH_BLOBS = blobs
    yield root
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def addresses(hosts, database_url, broker):
    """The hub's database and broker as the workers reach them."""
    from django.db import connection

    parts = urlsplit(database_url)
    (listening,) = Path(parse_qs(parts.query)["host"][0]).glob(".s.PGSQL.*[0-9]")
    proxies = [
        Proxy(hosts / "sockets" / ".s.PGSQL.5432", listening),
        Proxy(hosts / "sockets" / "broker", urlsplit(broker).path),
    ]
    name = connection.settings_dict["NAME"]
    where = f"host={quote(str(hosts / 'sockets'))}"
    yield (
        urlunsplit(parts._replace(path=f"/{name}", query=where)),
        f"redis+socket://{quote(str(hosts / 'sockets' / 'broker'))}",
    )
    for proxy in proxies:
        proxy.close()


@pytest.fixture
def start_host(apart, extra, hosts, addresses, spawn):
    """``start_host("a", "zone=a")`` starts a worker with one process and these labels."""
    users, network = apart

    def start(name, labels):
        uid = USERS[name] if users else None
        words = ("--app", "workers.app", "--skip-checks", "worker", "--beat", "--concurrency", "1")
        drop = ["setpriv", f"--reuid={uid}", f"--regid={uid}", f"--groups={GROUP}", "--"]
        return spawn(
            [
                *(["unshare", "--net", "--"] if network else []),
                *(drop if users else []),
                *(python_for(uid, extra) or [sys.executable]),
                *("-m", "celery", *words, "--hostname", f"{name}@host-{name}"),
            ],
            cwd=hosts / name if not users else "/",
            env={
                **libraries(extra),
                "HOME": str(hosts / name),
                "QH_HOME": str(hosts / name),
                "QH_BLOBS": str(hosts / "blobs"),
                "QH_DATABASE_URL": addresses[0],
                "QH_BROKER_URL": addresses[1],
                "QH_SECRET_KEY": "for-tests-" * 5,
                "QH_LEASE_SECONDS": "5",
                "QH_WORKER_LABELS": labels,
                # No container engine, whatever this machine has: both must be alike.
                "DOCKER_HOST": "unix:///nowhere",
            },
        )

    return start


@pytest.fixture
def ended(wait_for):
    """``ended(inspection)`` waits for its end and returns it."""

    def wait(inspection):
        rows = Inspection.objects.filter(pk=inspection.pk, finished_at__isnull=False)
        return wait_for(rows.first)

    return wait


def holders(inspection):
    rows = Batch.objects.filter(inspection=inspection, status="done")
    return {row.worker.partition("@")[0] for row in rows}


def test_workers_apart_judge_together_as_the_engine_alone(  # noqa: PLR0917 - fixtures by name.
    apart, hosts, start_host, wait_for, ended, open_home, rows, archive_of, environment
):
    def upload(files):
        return version_register(
            environment=environment,
            actor="owner@example.org",
            archive=archive_of(files),
            filename="tasks.tar.gz",
        ).version

    data = rows(TASKS, wrong=[3, 11])
    workers = {name: start_host(name, f"zone={name}") for name in USERS}
    wait_for(lambda: Worker.objects.count() == len(workers))
    assert {row.offer["labels"]["zone"] for row in Worker.objects.all()} == set(workers)
    if apart[1]:
        networks = [
            Path(f"/proc/{pid}/ns/net") for pid in ("self", *(w.pid for w in workers.values()))
        ]
        assert len({path.readlink() for path in networks}) == 3

    # Work that only one of them may do.
    labels = b'[environment]\nlabels = { zone = "b" }\n'
    special = upload({"tasks.jsonl": rows(1), "qualityhub.toml": labels})
    assert special.placement == {"labels": {"zone": "b"}}
    inspection = inspection_start(version=special, actor="owner@example.org")
    assert ended(inspection).verdict == "admitted"
    trials = Batch.objects.filter(inspection=inspection).exclude(kind="advance")
    assert {row.worker.partition("@")[0] for row in trials} == {"b"}

    # Work for both; one dies with a batch in its hands.
    version = upload({"tasks.jsonl": data})
    inspection = inspection_start(version=version, actor="owner@example.org")
    wait_for(lambda: holders(inspection) == set(workers))

    def busy():
        for batch in Batch.objects.filter(kind="trials", status="leased"):
            worker = workers[batch.worker.partition("@")[0]]
            os.killpg(worker.pid, signal.SIGSTOP)
            if Batch.objects.filter(pk=batch.pk, lease_token=batch.lease_token).exists():
                return batch, worker
            os.killpg(worker.pid, signal.SIGCONT)
        return None

    batch, killed = wait_for(busy)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    result = ended(inspection)
    assert (result.status, result.error_message, result.refused) == ("finished", "", {})
    again = Batch.objects.get(pk=batch.pk)
    assert (again.status, again.attempts) == ("done", 2)
    assert again.worker.partition("@")[0] != batch.worker.partition("@")[0]

    # Nothing is shared but the store; what a worker unpacked and built is its own.
    for name, uid in USERS.items():
        assert (hosts / name / "trees" / version.archive_sha256 / "tasks.jsonl").is_file()
        if apart[0]:
            state = (hosts / name).stat()
            assert (state.st_uid, state.st_mode & 0o077) == (uid, 0)
    assert not (open_home / "blobs").exists()

    source = open_home / "source"
    source.mkdir()
    (source / "tasks.jsonl").write_bytes(data)
    alone = inspect_source(str(source), InspectOptions(AdmissionPolicy(), open_home, cache=False))
    assert result.verdict == alone.verdict == "partial"
    assert {(item["fingerprint"], item["severity"]) for item in result.report["findings"]} == {
        (item.fingerprint, item.severity) for item in alone.findings
    }
    assert [row["verdict"] for row in result.report["tasks"]] == [
        row.verdict for row in alone.tasks
    ]
    # How many ran again cold depends on which ones a fork server took first.
    trials = InspectionTrial.objects.filter(inspection=inspection).count()
    assert trials == result.trials_done == result.trials_total
