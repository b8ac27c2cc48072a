"""A data folder that the sandbox's unprivileged user may enter."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

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
    import io
    import tarfile

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
