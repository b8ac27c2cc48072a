from __future__ import annotations

import gzip
import hashlib
import io

import pytest

from qualityhub.engine.blobs import DirectoryBlobs
from qualityhub.engine.errors import LimitExceededError, MachineryError, NotFoundError
from qualityhub.platform.blobs import PackageStore, blob_store


@pytest.fixture
def store(tmp_path):
    return PackageStore(DirectoryBlobs(tmp_path / "blobs"), tmp_path / "blobs")


def files(store):
    return [path for path in store.blobs.root.rglob("*") if path.is_file()]


def test_content_comes_back(store):
    content = bytes(range(256)) * 4096
    blob = store.put(io.BytesIO(content), max_bytes=2**20)
    assert (blob.size, store.read(blob.sha256)) == (len(content), content)
    assert store.exists(blob.sha256)


def test_same_content_is_stored_once(store):
    first, second = (store.put(b"same", max_bytes=10) for _ in range(2))
    assert first == second
    assert len(files(store)) == 1


def test_too_large_content_leaves_nothing_behind(store):
    for content in (b"x" * 11, io.BytesIO(b"x" * 11)):
        with pytest.raises(LimitExceededError) as caught:
            store.put(content, max_bytes=10)
        assert caught.value.code == "blob.too_large"
        assert not store.blobs.root.exists() or files(store) == []
    assert store.put(b"x" * 10, max_bytes=10).size == 10


def test_damage_is_noticed_on_reading(store):
    for damage in (lambda whole: whole[:-3], lambda _: b"", lambda whole: b"\xff" + whole[1:]):
        blob = store.put(b"content" * 100, max_bytes=1000)
        (path,) = files(store)
        path.write_bytes(damage(path.read_bytes()))
        with pytest.raises(MachineryError) as caught:
            store.read(blob.sha256)
        assert caught.value.code == "blob.lost"


def test_files_as_they_were_stored_at_first_are_found(store):
    for suffix, pack in (("", bytes), (".gz", gzip.compress)):
        content = f"first{suffix}".encode()
        name = hashlib.sha256(content).hexdigest()
        path = store.older / name[:2] / name[2:4] / f"{name}{suffix}"
        path.parent.mkdir(parents=True)
        path.write_bytes(pack(content))
        assert store.exists(name)
        assert store.read(name) == content
        path.write_bytes(pack(b"another"))
        with pytest.raises(MachineryError):
            store.read(name)


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "A" * 64, "0" * 63])
def test_what_is_no_name_is_not_found(store, name):
    assert not store.exists(name)
    with pytest.raises(NotFoundError):
        store.read(name)


def test_folder_is_closed_to_others(store):
    store.put(b"x", max_bytes=1)
    assert store.blobs.root.stat().st_mode & 0o077 == 0


def test_store_lies_where_the_operator_says(settings, tmp_path):
    settings.QH_BLOBS = tmp_path / "shared"
    blob = blob_store().put(b"package", max_bytes=100)
    settings.QH_HOME = tmp_path / "another-host"
    assert blob_store().read(blob.sha256) == b"package"
    settings.QH_BLOBS = None
    assert not blob_store().exists(blob.sha256)
