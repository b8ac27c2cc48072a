from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def open_dir():
    """A folder that the database's unprivileged id can pass through; pytest's own is closed to it."""
    folder = Path(tempfile.mkdtemp(prefix="qh-test-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def run_python():
    """Start a Python of its own with the project on its path; whatever is left is killed."""
    root = Path(__file__).parents[2]
    started = []

    def start(code, *args, **options):
        process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, args)],
            cwd=root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **options,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()
