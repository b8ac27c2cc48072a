from __future__ import annotations

import gzip
import json

import pytest

NDJSON = "application/x-ndjson"


@pytest.fixture
def checkpoint(team):
    from qualityhub.gates.services import checkpoint_create

    return checkpoint_create(team=team, name="step-100")


@pytest.fixture
def run(checkpoint, domain):
    from qualityhub.gates.services import eval_run_create

    return eval_run_create(checkpoint=checkpoint, name="nightly", domain=domain)


@pytest.fixture
def lines():
    """``lines(rows)`` are NDJSON bytes of rows given as dictionaries or as raw text."""

    def make(rows):
        return "".join(
            (row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows
        ).encode()

    return make


@pytest.fixture
def send(lines):
    """``send(api, run, rows)`` posts rows; ``zipped`` compresses, ``key`` is an idempotency key."""

    def post(api, run, rows, *, zipped=False, key=None, query="", content_type=NDJSON, **headers):
        body = rows if isinstance(rows, bytes) else lines(rows)
        if zipped:
            body = gzip.compress(body)
            headers["HTTP_CONTENT_ENCODING"] = "gzip"
        if key is not None:
            headers["HTTP_IDEMPOTENCY_KEY"] = key
        ref = run if isinstance(run, str) else run.public_id
        return api.post(
            f"/api/v1/eval-runs/{ref}/rollouts{query}", body, content_type=content_type, **headers
        )

    return post


@pytest.fixture
def narrow(make_api, owner, team):
    """The owner's token that may send results and nothing else."""
    return make_api(owner, team, ["results:write"])


@pytest.fixture
def contributor_api(make_api, contributor, team):
    return make_api(contributor, team)


@pytest.fixture
def sealed(team, domain, owner_api, send):
    """``sealed("name", passes)``: a sealed run of its own checkpoint, 40 tasks, 2 rollouts each."""
    from qualityhub.gates.services import checkpoint_create, eval_run_create, eval_run_seal

    def make(name, passes=30):
        run = eval_run_create(
            checkpoint=checkpoint_create(team=team, name=name), name=name, domain=domain
        )
        rows = [
            {"task": f"t{task}", "attempt": attempt, "passed": (task * 7 + attempt) % 40 < passes}
            for task in range(40)
            for attempt in range(2)
        ]
        assert send(owner_api, run, rows).status_code == 200
        return eval_run_seal(run=run)

    return make
