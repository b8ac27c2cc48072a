# ruff: noqa: INP001 - a script, not a package.
"""Run one command with a PostgreSQL of its own: ``with_database.py COMMAND…``.

``QH_TEST_DATABASE_URL`` names another server instead. Exits with the command's code.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from qualityhub.standalone.postgres import EmbeddedPostgres


def main(command: list[str]) -> int:
    """Start the server, run the command, stop the server."""
    if given := os.environ.get("QH_TEST_DATABASE_URL"):
        return subprocess.run(
            command, env=os.environ | {"QH_DATABASE_URL": given}, check=False
        ).returncode
    # Not below this user's home: as root, the server takes an id that may not enter there.
    folder = Path(tempfile.mkdtemp(prefix="qh-db-", dir="/tmp"))
    try:
        with EmbeddedPostgres(folder, settings={"fsync": "off"}) as server:
            environment = os.environ | {"QH_DATABASE_URL": server.url}
            return subprocess.run(command, env=environment, check=False).returncode
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
