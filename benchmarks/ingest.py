"""Ingest of rollouts over REST, durable and idempotent, against COPY + INSERT without HTTP.

Starts its own PostgreSQL (fsync on) and its own gunicorn on loopback, in a temporary folder.
Target: at least 30,000 rows/s, and at least 40 % of COPY + INSERT ... ON CONFLICT of the same rows
into the same table.

Run: python benchmarks/ingest.py [--rows 200000] [--streams 2]
"""

# ruff: noqa: PLC0415 - Django is imported once its settings are known.
from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import psycopg

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
TARGET_ROWS, TARGET_RATIO = 30_000, 0.40
TASKS_PER_DOMAIN, ATTEMPTS = 500, 8
PATIENCE_S = 120


def make_rows(count: int) -> list[dict[str, object]]:
    chance = random.Random(1)
    return [
        {
            "domain": f"domain-{task // TASKS_PER_DOMAIN:03d}",
            "task": f"suite/task-{task:06d}",
            "task_digest": f"qh1:{task:064x}",
            "attempt": attempt,
            "reward": float(chance.random() < 0.6),
            "latency_ms": round(chance.uniform(50, 60_000), 3),
            "input_tokens": chance.randrange(200, 9000),
            "output_tokens": chance.randrange(10, 4000),
            "cost": round(chance.random() / 10, 6),
            "turns": chance.randrange(1, 30),
            "trace_ref": f"s3://traces/{task}/{attempt}.json",
        }
        for task in range(count // ATTEMPTS)
        for attempt in range(ATTEMPTS)
    ]


@contextlib.contextmanager
def hub(folder: Path) -> Iterator[tuple[str, str, str]]:
    """A migrated database and a web server; yields (base URL, token, database URL)."""
    from qualityhub.standalone.postgres import EmbeddedPostgres

    server = EmbeddedPostgres(folder)
    web = None
    try:
        url = server.start()
        os.environ |= {
            "QH_DATABASE_URL": url,
            "QH_HOME": str(folder / "home"),
            "QH_SECRET_KEY": "benchmark-" * 5,
            "QH_LOG_LEVEL": "warning",
            "DJANGO_SETTINGS_MODULE": "qualityhub.settings",
        }
        token = prepare()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        web = subprocess.Popen(
            [
                *(sys.executable, "-m", "gunicorn", "qualityhub.wsgi:application"),
                *("--bind", f"127.0.0.1:{port}", "--worker-class", "gthread"),
                *("--workers", "2", "--threads", "4", "--timeout", str(PATIENCE_S)),
                *("--log-level", "warning"),
            ],
            cwd=ROOT,
        )
        base = f"http://127.0.0.1:{port}"
        wait_for(base)
        yield base, token, url
    finally:
        if web is not None:
            web.terminate()
            web.wait(30)
        server.stop()


def prepare() -> str:
    """Migrate, and make a team with domains and a token."""
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    from django.db import connections

    from qualityhub.accounts.choices import Scope
    from qualityhub.accounts.services import team_create, token_create, user_create

    user = user_create(email="bench@example.org")
    team = team_create(name="Bench", owner=user)
    scopes = [scope for scope in Scope.values if scope != "admin"]
    _, token = token_create(user=user, team=team, name="bench", scopes=scopes)
    connections.close_all()
    return token


def wait_for(base: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{base}/healthz").status_code == 200:
                return
        time.sleep(0.1)
    raise SystemExit("the web server did not start")


def post_rows(client: httpx.Client, run: str, body: bytes) -> dict[str, int]:
    answer = client.post(
        f"/eval-runs/{run}/rollouts?create_domains=true",
        content=body,
        headers={
            "Content-Type": "application/x-ndjson",
            "Content-Encoding": "gzip",
            "Idempotency-Key": f"{run}-{time.monotonic_ns()}",
        },
        timeout=PATIENCE_S,
    )
    answer.raise_for_status()
    return answer.json()


def open_runs(client: httpx.Client, names: list[str]) -> list[str]:
    checkpoint = client.post("/checkpoints", json={"name": names[0]}).raise_for_status().json()
    return [
        client.post("/eval-runs", json={"checkpoint": checkpoint["id"], "name": name})
        .raise_for_status()
        .json()["id"]
        for name in names
    ]


def streams_at_once(base: str, token: str, runs: list[str], body: bytes) -> float:
    """Seconds until every run has its rows, each sent by a thread of its own."""
    answers: list[dict[str, int]] = []

    def send(run: str) -> None:
        with api(base, token) as client:
            answers.append(post_rows(client, run, body))

    threads = [threading.Thread(target=send, args=(run,)) for run in runs]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    if len(answers) != len(runs) or any(answer["inserted"] == 0 for answer in answers):
        raise SystemExit(f"rows were not stored: {answers}")
    return seconds


def api(base: str, token: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=f"{base}/api/v1", headers=headers, timeout=PATIENCE_S)


def without_http(url: str, rows: list[dict[str, object]], run_id: int) -> float:
    """Seconds of COPY + INSERT ... ON CONFLICT of the same rows, prepared text, one commit."""
    lines = "".join(
        f"{row['domain']}\t{row['task']}\t{row['task_digest']}\t{row['attempt']}\t{number}\t0\t"
        f"{'t' if row['reward'] else 'f'}\t{row['reward']}\t{row['latency_ms']}\t"
        f"{row['input_tokens']}\t{row['output_tokens']}\t{row['cost']}\t{row['turns']}\t"
        f"{row['trace_ref']}\n"
        for number, row in enumerate(rows)
    ).encode()
    with psycopg.connect(url) as connection:
        start = time.perf_counter()
        connection.execute(
            "CREATE TEMPORARY TABLE given (domain text, task text, digest text, attempt integer,"
            " content bigint, validity smallint, passed boolean, reward float8, latency_ms float8,"
            " input_tokens bigint, output_tokens bigint, cost float8, turns bigint,"
            " trace_ref text) ON COMMIT DROP"
        )
        with connection.cursor().copy("COPY given FROM STDIN") as copy:
            copy.write(lines)
        stored = connection.execute(
            "INSERT INTO gates_rollout (run_id, task_key_id, attempt, content, validity, passed,"
            " reward, latency_ms, input_tokens, output_tokens, cost, turns, trace_ref)"
            " SELECT %s, k.id, g.attempt, g.content, g.validity, g.passed, g.reward, g.latency_ms,"
            " g.input_tokens, g.output_tokens, g.cost, g.turns, g.trace_ref"
            " FROM given g JOIN registry_domain d ON d.slug = g.domain"
            " JOIN gates_taskkey k ON k.domain_id = d.id AND k.task = g.task"
            " AND k.digest = g.digest ON CONFLICT DO NOTHING",
            [run_id],
        ).rowcount
        connection.commit()
        seconds = time.perf_counter() - start
    if stored != len(rows):
        raise SystemExit(f"the reference stored {stored} of {len(rows)} rows")
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--streams", type=int, default=2)
    options = parser.parse_args()
    rows = make_rows(options.rows)
    body = gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode(), 6)
    folder = Path(tempfile.mkdtemp(prefix="qh-bench-", dir="/tmp"))
    try:
        with hub(folder) as (base, token, url), api(base, token) as client:
            runs = open_runs(
                client, ["warm", "one", "two", *(f"s{n}" for n in range(options.streams))]
            )
            first = streams_at_once(base, token, runs[:1], body)
            one = min(streams_at_once(base, token, [run], body) for run in runs[1:3])
            start = time.perf_counter()
            again = post_rows(client, runs[1], body)
            replay = time.perf_counter() - start
            many = streams_at_once(base, token, runs[3:], body)
            reference = min(without_http(url, rows, 10_000 + n) for n in range(2))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    count = len(rows)
    rate, ratio = count / one, reference / one
    print(f"{count:,} rows, {len(body) / 1e6:.1f} MB gzip, fsync on, one commit per request")
    print(f"first request, all tasks new:      {count / first:10,.0f} rows/s")
    print(f"one stream:                        {rate:10,.0f} rows/s  (target {TARGET_ROWS:,})")
    print(f"{options.streams} streams, a run each:            "
          f"{count * options.streams / many:10,.0f} rows/s")  # fmt: skip
    print(f"the same rows again ({again['duplicates']:,}):   {count / replay:10,.0f} rows/s")
    print(f"COPY + INSERT without HTTP:        {count / reference:10,.0f} rows/s")
    print(f"ratio of one stream:               {ratio:10.0%}  (target {TARGET_RATIO:.0%})")
    return 0 if rate >= TARGET_ROWS and ratio >= TARGET_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
