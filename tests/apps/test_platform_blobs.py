from __future__ import annotations

import io

import pytest

from qualityhub.engine.errors import LimitExceededError, MachineryError, NotFoundError
from qualityhub.platform.blobs import DirectoryBlobStore


@pytest.fixture
def store(tmp_path):
    return DirectoryBlobStore(tmp_path / "blobs")


@pytest.mark.parametrize("compress", [False, True])
def test_content_comes_back(store, compress):
    content = bytes(range(256)) * 4096
    blob = store.put(io.BytesIO(content), max_bytes=2**20, compress=compress)
    assert (blob.size, store.read(blob.sha256)) == (len(content), content)
    assert store.exists(blob.sha256)


def test_same_content_is_stored_once(store):
    first, second = (store.put(b"same", max_bytes=10) for _ in range(2))
    assert first == second
    assert len([path for path in store.root.rglob("*") if path.is_file()]) == 1


def test_too_large_content_leaves_nothing_behind(store):
    with pytest.raises(LimitExceededError) as caught:
        store.put(b"x" * 11, max_bytes=10)
    assert caught.value.code == "blob.too_large"
    assert [path for path in store.root.rglob("*") if path.is_file()] == []
    assert store.put(b"x" * 10, max_bytes=10).size == 10


@pytest.mark.parametrize("compress", [False, True])
def test_damage_is_noticed_on_reading(store, compress):
    blob = store.put(b"content" * 100, max_bytes=1000, compress=compress)
    (path,) = [path for path in store.root.rglob("*") if path.is_file()]
    whole = path.read_bytes()
    for damaged in (whole[:-3], b"", whole[:12] + b"\xff\xff" + whole[14:]):
        path.write_bytes(damaged)
        with pytest.raises(MachineryError) as caught:
            store.read(blob.sha256)
        assert caught.value.code == "blob.damaged"


@pytest.mark.parametrize("name", ["0" * 64, "../../etc/passwd", "", "A" * 64, "0" * 63])
def test_unknown_name_is_not_found(store, name):
    with pytest.raises(NotFoundError):
        store.read(name)


def test_folder_is_closed_to_others(store):
    store.put(b"x", max_bytes=1)
    assert store.root.stat().st_mode & 0o077 == 0
