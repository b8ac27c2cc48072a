from __future__ import annotations

import json

import pytest


@pytest.fixture
def checkpoint(team):
    from qualityhub.gates.services import checkpoint_create

    return checkpoint_create(team=team, name="step-100")


@pytest.fixture
def run(checkpoint, domain):
    from qualityhub.gates.services import eval_run_create

    return eval_run_create(checkpoint=checkpoint, name="nightly", domain=domain)


@pytest.fixture
def ingest(domain):
    """``ingest(run, rows)`` stores rows given as dictionaries or as raw lines."""
    from qualityhub.gates.services import rollouts_ingest, rows_from
    from qualityhub.gates.stream import RowStream

    def store(run, rows, **options):
        body = "".join(
            (row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows
        ).encode()
        domains = options.pop("domains", {domain.slug: domain.pk})
        return rollouts_ingest(
            run=run, stream=RowStream(rows_from([body])), domains=domains, **options
        )

    return store
