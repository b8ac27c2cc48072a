"""Helpers of the API tests."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

ROW = (
    '{"task_id": "T/%d", "prompt": "def f(x):\\n", "entry_point": "f", '
    '"canonical_solution": "    return x + %d\\n", '
    '"test": "def check(f):\\n    assert f(1) == 1 + %d\\n"}\n'
)


@pytest.fixture
def rows():
    """``rows(2)`` returns a HumanEval file of two tasks."""

    def make(count=2, shift=0):
        return "".join(ROW % (n, n + shift, n + shift) for n in range(count)).encode()

    return make


@pytest.fixture
def tar_of():
    """``tar_of({"a.jsonl": b"…"})`` returns an upload with these files."""

    def make(files, name="env.tar.gz"):
        data = io.BytesIO()
        # Without the time of day: the same files are the same bytes in the next second too.
        with (
            gzip.GzipFile(fileobj=data, mode="wb", mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            for path, content in files.items():
                info = tarfile.TarInfo(path)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        return SimpleUploadedFile(name, data.getvalue())

    return make


@pytest.fixture
def zip_of():
    def make(files, name="env.zip"):
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as archive:
            for path, content in files.items():
                archive.writestr(path, content)
        return SimpleUploadedFile(name, data.getvalue())

    return make


@pytest.fixture
def is_problem():
    """``is_problem(response, 404, "domain.not_found")`` checks status, type and code at once."""

    def check(response, status, code):
        assert response.status_code == status, response.content
        assert response["Content-Type"] == "application/problem+json"
        document = response.json()
        assert document["code"] == code
        assert document["status"] == status
        assert document["request_id"] == response["X-Request-ID"]
        assert document["type"] == f"urn:qualityhub:problem:{code}"
        return document

    return check
