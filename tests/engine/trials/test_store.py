"""The directory store keeps results whole, or not at all."""

import multiprocessing
import os
import threading

import pytest

from qualityhub.engine.trials.codec import (
    ask_from_evidence,
    ask_to_evidence,
    result_from_json,
    to_json,
    trial_from_json,
)
from qualityhub.engine.trials.model import Ask, Observation, Trial, TrialResult, Variation
from qualityhub.engine.trials.store import DirectoryStore, NullStore

TRIAL = Trial(
    program="scorer",
    asks=(Ask("a", "oracle"), Ask("b", "nop", Variation(3, 1), 2)),
    payload={"cases": [{"row": 0, "completion": "é\u0000"}]},
    trees={"/qh/env": "qh1:x"},
    variation=Variation(3, 1),
    repeat=2,
    generation=0,
    world="w",
    wall_s=12.5,
)
RESULT = TrialResult(
    key=TRIAL.key,
    observations=(
        Observation("reward", 0.5, facts={"trace": ["a"], "n": 3}),
        Observation("reward", "nan", detail="\ud800 lone"),
    ),
    seconds=0.25,
)


@pytest.fixture
def store(tmp_path):
    return DirectoryStore(tmp_path / "trials")


def only_file(store):
    [path] = [path for path in store.root.rglob("*") if path.is_file()]
    return path


def test_what_was_put_is_got(store):
    assert store.get(RESULT.key) is None
    store.put(RESULT)
    assert store.get(RESULT.key) == RESULT


def test_the_first_result_of_a_key_wins(store):
    store.put(RESULT)
    store.put(TrialResult(RESULT.key, (), seconds=9.0))
    assert store.get(RESULT.key) == RESULT


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "other"])
def test_a_damaged_entry_is_dropped_and_can_be_written_again(store, damage):
    store.put(RESULT)
    path = only_file(store)
    content = path.read_bytes()
    path.write_bytes(
        {
            "cut": content[:-5],
            "flip": content[:-1] + bytes([content[-1] ^ 1]),
            "empty": b"",
            "other": b"not ours\n",
        }[damage]
    )
    assert store.get(RESULT.key) is None
    store.put(RESULT)
    assert store.get(RESULT.key) == RESULT


def test_a_folder_in_an_entrys_place_is_absent_and_put_aside(store):
    store.put(RESULT)
    path = only_file(store)
    path.unlink()
    path.mkdir()
    (path / "inside").write_bytes(b"")
    assert store.get(RESULT.key) is None
    store.put(RESULT)
    assert store.get(RESULT.key) == RESULT


def test_an_unreadable_entry_is_absent(store):
    store.put(RESULT)
    root = os.geteuid() == 0
    only_file(store).chmod(0)
    if root:
        os.seteuid(65534)
    try:
        assert store.get(RESULT.key) is None
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.parametrize("key", ["", "qh1:", "qh1:../../etc/passwd", "qh1:" + "A" * 64])
def test_what_is_no_key_is_absent_and_not_stored(store, key):
    assert store.get(key) is None
    store.put(TrialResult(key, (), seconds=1.0))
    assert not store.root.exists()


def test_an_entry_that_is_used_is_young_again(store):
    store.put(RESULT)
    path = only_file(store)
    os.utime(path, (1000, 1000))
    assert store.get(RESULT.key) == RESULT
    assert path.stat().st_mtime > 1000


def put_all(root, start):
    store = DirectoryStore(root)
    for number in range(60):
        key = f"qh1:{(number * 7 + start) % 60:064x}"
        store.put(TrialResult(key, (), seconds=float(start)))
        assert store.get(key) is not None


def test_processes_that_write_the_same_keys_leave_whole_entries(store):
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=put_all, args=(store.root, start)) for start in (1, 2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    found = [store.get(f"qh1:{number:064x}") for number in range(60)]
    assert all(result is not None and result.seconds in {1.0, 2.0} for result in found)
    assert list(store.root.rglob(".new-*")) == []


def test_an_entry_under_anothers_name_is_not_believed(store):
    store.put(RESULT)
    other = "qh1:" + "0" * 64
    target = store._path(other)
    target.parent.mkdir(parents=True)
    only_file(store).rename(target)
    assert store.get(other) is None


def test_many_writers_leave_one_whole_entry(store):
    threads = [threading.Thread(target=store.put, args=(RESULT,)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.get(RESULT.key) == RESULT
    only_file(store)


def test_the_null_store_forgets():
    store = NullStore()
    store.put(RESULT)
    assert store.get(RESULT.key) is None


def test_trials_results_and_asks_survive_json():
    assert trial_from_json(to_json(TRIAL)) == TRIAL
    assert trial_from_json(to_json(TRIAL)).key == TRIAL.key
    assert result_from_json(to_json(RESULT)) == RESULT
    for ask in TRIAL.asks:
        assert ask_from_evidence(ask_to_evidence(ask)) == ask
