"""Sample packages, copied so that a test may change them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parents[2] / "data" / "environments"


@pytest.fixture
def sample(tmp_path):
    def copy(name: str) -> Path:
        return Path(shutil.copytree(SAMPLES / name, tmp_path / name, symlinks=True))

    return copy


@pytest.fixture
def package(tmp_path):
    """Write files into a folder; content is text or bytes."""

    def write(files: dict[str, str | bytes], name: str = "package") -> Path:
        root = tmp_path / name
        root.mkdir(exist_ok=True)
        for path, content in files.items():
            place = root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content if isinstance(content, bytes) else content.encode())
        return root

    return write
