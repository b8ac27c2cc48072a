"""Fifty thousand trials in a row, and nothing that grows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks/soak.py"
TRIALS = os.environ.get("QH_TEST_SOAK_TRIALS", "50000")


@pytest.mark.long
def test_a_day_in_miniature_grows_nothing():
    # A process of its own: what pytest holds is no part of it.
    seen = subprocess.run(
        [sys.executable, str(BENCHMARK), "--trials", TRIALS, "--every", str(int(TRIALS) // 50)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert seen.returncode == 0, seen.stdout[-6000:] + seen.stderr[-2000:]
    assert "nothing grows" in seen.stdout
