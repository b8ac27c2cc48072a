from __future__ import annotations

from pathlib import Path

import yaml
from django.core.management import call_command

ROOT = Path(__file__).parents[2]


def test_written_schema_is_the_one_the_code_makes(tmp_path):
    made = tmp_path / "openapi.yaml"
    call_command("spectacular", file=str(made), validate=True, fail_on_warn=True)
    assert made.read_text() == (ROOT / "docs/openapi.yaml").read_text(), (
        "run: manage.py spectacular --file docs/openapi.yaml"
    )


def test_schema_is_3_1_and_names_every_operation_and_its_problems():
    document = yaml.safe_load((ROOT / "docs/openapi.yaml").read_text())
    assert document["openapi"].startswith("3.1")
    ids = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if method not in {"get", "post", "put", "patch", "delete"}:
                continue
            ids.append(operation["operationId"])
            assert operation.get("summary") or operation.get("description"), path
            assert "default" in operation["responses"], path
    assert len(ids) == len(set(ids))
    assert {"versions_create", "tokens_create", "jobs_get"} <= set(ids)


def test_schema_and_its_page_need_nothing_from_elsewhere(client, db):
    assert client.get("/api/schema").status_code == 200
    page = client.get("/api/docs").content.decode()
    assert "/static/drf_spectacular_sidecar/" in page
    assert "https://" not in page
    assert "<script>" not in page
