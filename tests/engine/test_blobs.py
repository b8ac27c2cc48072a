"""Blobs are whole or absent, whoever writes, damages or sweeps at the same time."""

from __future__ import annotations

import hashlib
import io
import multiprocessing
import os
import signal
import threading
import time

import pytest

from qualityhub.engine.blobs import DirectoryBlobs
from qualityhub.engine.errors import LimitExceededError
from qualityhub.engine.sweeping import sweep

DAY = 86400.0


@pytest.fixture
def blobs(tmp_path):
    return DirectoryBlobs(tmp_path / "blobs")


def path_of(blobs, digest):
    return blobs.root / digest[:2] / digest[2:4] / f"{digest}.zst"


def leftovers(blobs):
    return [path.name for path in blobs.root.iterdir() if path.name.startswith(".")]


def make_old(blobs, digest, seconds=2 * DAY):
    then = time.time() - seconds
    os.utime(path_of(blobs, digest), (then, then))


def test_what_was_put_is_got_under_its_own_digest(blobs):
    content = b"a\0b" * 5000
    digest = blobs.put(content)
    assert digest == hashlib.sha256(content).hexdigest()
    assert blobs.has(digest)
    assert blobs.get(digest) == content
    assert path_of(blobs, digest).stat().st_size < 200
    assert leftovers(blobs) == []


def test_a_stream_is_the_same_blob_as_its_bytes(blobs):
    content = os.urandom(700_000)
    digest = blobs.put(io.BytesIO(content))
    assert digest == blobs.put(content)
    with blobs.open(digest) as file:
        assert file.read() == content
    assert [(blob.digest, blob.size) for blob in blobs.iterate()] == [
        (digest, path_of(blobs, digest).stat().st_size)
    ]


@pytest.mark.parametrize("content", [b"x" * 11, io.BytesIO(b"x" * 11)])
def test_what_is_too_large_leaves_nothing(blobs, content):
    with pytest.raises(LimitExceededError) as caught:
        blobs.put(content, max_bytes=10)
    assert caught.value.code == "blob.too_large"
    assert list(blobs.iterate()) == []
    assert not blobs.root.exists() or leftovers(blobs) == []


def test_content_larger_than_the_reader_takes_is_absent_and_stays(blobs):
    digest = blobs.put(b"0" * 5000)
    assert blobs.get(digest, max_bytes=4999) is None
    assert blobs.get(digest, max_bytes=5000) == b"0" * 5000


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 64])
def test_a_name_that_is_none_is_absent(blobs, name):
    assert blobs.get(name) is None
    assert blobs.open(name) is None
    assert not blobs.has(name)
    assert not blobs.delete(name)


def damage(path, kind):
    data = path.read_bytes()
    if kind == "flipped":
        path.write_bytes(data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])
    elif kind == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "other":
        path.write_bytes(b"not compressed at all")
    elif kind == "folder":
        path.unlink()
        path.mkdir()
        (path / "inside").write_bytes(b"")
    elif kind == "link":
        path.rename(path.with_name("elsewhere"))
        path.symlink_to("elsewhere")
    else:
        path.unlink()
        os.mkfifo(path)


@pytest.mark.parametrize(
    "kind", ["flipped", "truncated", "empty", "other", "folder", "link", "pipe"]
)
def test_a_damaged_blob_is_absent_and_can_be_put_again(blobs, kind):
    content = bytes(range(256)) * 8
    digest = blobs.put(content)
    damage(path_of(blobs, digest), kind)
    assert blobs.get(digest) is None
    assert blobs.put(content) == digest
    assert blobs.get(digest) == content


@pytest.mark.parametrize("kind", ["flipped", "truncated", "empty", "other"])
def test_a_damaged_file_is_removed_when_it_is_read(blobs, kind):
    digest = blobs.put(bytes(range(256)) * 8)
    damage(path_of(blobs, digest), kind)
    assert blobs.open(digest) is None
    assert not blobs.has(digest)


def test_a_blob_damaged_unseen_is_repaired_by_who_puts_it(blobs):
    digest = blobs.put(b"content" * 50)
    damage(path_of(blobs, digest), "flipped")
    blobs.put(b"content" * 50)
    assert blobs.get(digest) == b"content" * 50


def test_an_unreadable_blob_is_absent_and_stays(blobs):
    digest = blobs.put(b"private")
    path, root = path_of(blobs, digest), os.geteuid() == 0
    path.chmod(0)
    if root:
        os.seteuid(65534)
    try:
        assert blobs.get(digest) is None
        assert blobs.open(digest) is None
    finally:
        if root:
            os.seteuid(0)
    path.chmod(0o600)
    assert blobs.get(digest) == b"private"


def test_a_file_in_place_of_a_folder_is_put_aside(blobs):
    digest = hashlib.sha256(b"x").hexdigest()
    blobs.root.mkdir()
    (blobs.root / digest[:2]).write_bytes(b"in the way")
    assert blobs.get(digest) is None
    assert blobs.put(b"x") == digest
    assert blobs.get(digest) == b"x"


def test_a_new_folder_is_private_and_one_for_a_group_stays_one(blobs, tmp_path):
    digest = blobs.put(b"x")
    assert blobs.root.stat().st_mode & 0o777 == 0o700
    assert path_of(blobs, digest).stat().st_mode & 0o777 == 0o600
    shared = DirectoryBlobs(tmp_path / "shared")
    shared.root.mkdir()
    shared.root.chmod(0o2770)
    digest = shared.put(b"x")
    assert path_of(shared, digest).stat().st_mode & 0o777 == 0o660
    assert path_of(shared, digest).parent.stat().st_mode & 0o777 == 0o770


def put_all(root, count):
    store = DirectoryBlobs(root)
    for number in range(count):
        content = b"%d" % number * 100
        assert store.get(store.put(content)) == content


def test_processes_that_put_the_same_blobs_beside_a_sweep_lose_none(blobs):
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=put_all, args=(blobs.root, 100)) for _ in range(2)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        sweep(blobs, lambda names: (), grace_s=600.0, most=10)
        blobs.tidy(600.0)
    assert [writer.exitcode for writer in writers] == [0, 0]
    found = [blobs.get(blob.digest) for blob in blobs.iterate()]
    assert sorted(found) == sorted(b"%d" % number * 100 for number in range(100))
    assert leftovers(blobs) == []


def test_a_folder_that_pruning_takes_away_is_made_again(blobs, monkeypatch):
    made, taken = blobs._made, []

    def pruned(folder, **given):
        answer = made(folder, **given)
        if folder != blobs.root and len(taken) < 3:
            taken.append(folder)
            folder.rmdir()
        return answer

    monkeypatch.setattr(blobs, "_made", pruned)
    digest = blobs.put(b"content")
    assert len(taken) == 3
    assert blobs.get(digest) == b"content"


def test_threads_leave_one_whole_blob(blobs):
    threads = [threading.Thread(target=blobs.put, args=(b"one" * 900,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [blob] = blobs.iterate()
    assert blobs.get(blob.digest) == b"one" * 900
    assert leftovers(blobs) == []


def write_forever(root, ready):
    store = DirectoryBlobs(root)
    for number in range(10**9):
        store.put(b"%d" % number * 3000)
        ready.set()


def test_a_killed_writer_leaves_no_half_blob(blobs):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    writer = context.Process(target=write_forever, args=(blobs.root, ready))
    writer.start()
    assert ready.wait(30)
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    assert all(blobs.get(blob.digest) is not None for blob in list(blobs.iterate()))
    blobs.tidy(0.0)
    assert leftovers(blobs) == []


def test_a_sweep_removes_what_is_old_and_unnamed_alone(blobs):
    named, unnamed, young = (blobs.put(word) for word in (b"named", b"unnamed", b"young"))
    make_old(blobs, named)
    make_old(blobs, unnamed)
    done = sweep(blobs, {named}.intersection, grace_s=DAY, most=100)
    assert (done.seen, done.removed, done.ended) == (3, 1, True)
    assert done.freed_bytes > 0
    assert [blobs.has(digest) for digest in (named, unnamed, young)] == [True, False, True]
    again = sweep(blobs, {named}.intersection, grace_s=DAY, most=100)
    assert (again.seen, again.removed) == (2, 0)


def test_a_blob_put_again_while_a_sweep_decides_is_kept(blobs):
    digest = blobs.put(b"content")
    make_old(blobs, digest)

    def referenced(names):
        # A worker stores the same outputs now; its row comes later.
        assert names == [digest]
        blobs.put(b"content")
        return ()

    assert sweep(blobs, referenced, grace_s=DAY, most=100).removed == 0
    assert blobs.get(digest) == b"content"
    assert leftovers(blobs) == []


def test_a_sweep_stops_at_its_bound_and_the_next_goes_on(blobs):
    for number in range(5):
        make_old(blobs, blobs.put(b"%d" % number))
    first = sweep(blobs, lambda names: (), grace_s=DAY, most=3)
    assert (first.removed, first.ended) == (3, False)
    second = sweep(blobs, lambda names: (), grace_s=DAY, most=3)
    assert (second.removed, second.ended) == (2, True)


def test_what_a_killed_sweep_took_aside_comes_back(blobs):
    digest = blobs.put(b"content")
    path_of(blobs, digest).rename(blobs.root / f".old-{digest}-17")
    assert not blobs.has(digest)
    blobs.tidy(0.0)
    assert blobs.get(digest) == b"content"


def test_tidying_leaves_what_is_being_written(blobs):
    blobs.root.mkdir()
    (blobs.root / ".new-half").write_bytes(b"half")
    blobs.tidy(DAY)
    assert leftovers(blobs) == [".new-half"]
