"""The same hostile programs, started by an ordinary user: limits may be soft, nothing else is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest

import qualityhub

UID = 61_234
ROOT = Path(qualityhub.__file__).resolve().parent.parent
PACKAGES = Path(msgspec.__file__).resolve().parent.parent
SCRIPT = Path(__file__).with_name("hostile_user.py")


def _start(python):
    command = [python, "-B", str(SCRIPT)]
    if os.getuid() == 0:
        who = (f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "--inh-caps=-all")
        # By way of a second program: the first is started with rights that only then are gone.
        command = ["setpriv", *who, "env", *command]
    return command


def _python():
    """Return an interpreter that an ordinary user can start and that has what the engine needs."""
    for python in (sys.executable, "/usr/bin/python3"):
        asking = [*_start(python)[:-2], "-c", "import msgspec, qualityhub.engine.sandbox.bwrap"]
        try:
            seen = subprocess.run(asking, env=_env(), cwd="/", capture_output=True, check=False)
        except OSError:
            continue
        if seen.returncode == 0:
            return python
    return None


def _env():
    return {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT}:{PACKAGES}"}


@pytest.mark.parametrize("way", ["cold", pytest.param("served", marks=pytest.mark.long)])
def test_an_ordinary_user_is_as_safe(way):
    if os.getuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("setpriv is needed to become an ordinary user")
    python = _python()
    if python is None:
        pytest.skip("no interpreter here that an ordinary user can read")
    folder = tempfile.mkdtemp(prefix="qh-hostile-", dir="/tmp")
    try:
        if os.getuid() == 0:
            os.chown(folder, UID, UID)
        Path(folder).chmod(0o755)
        seen = subprocess.run(
            [*_start(python), folder, way],
            env=_env(),
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert seen.returncode == 0, seen.stderr
        said = json.loads(seen.stdout)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not said["usable"]:
        pytest.skip(f"an ordinary user cannot run bubblewrap here: {said['reason']}")
    assert said["uid"] != 0
    assert said["ran"] > 40
    assert set(said["soft"]) <= {"memory_bytes", "pids"}
    assert said["failed"] == {}
