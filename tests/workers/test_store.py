from __future__ import annotations

import time

from qualityhub.engine.sandbox import reclaim


def test_a_worker_keeps_the_store_of_its_host_below_the_cap(settings, tmp_path):
    from workers.upkeep import keep_store

    settings.QH_HOME = tmp_path
    results = tmp_path / "trials/ab/cd"
    results.mkdir(parents=True)
    (results / "abcd").write_text("x" * 10_000)
    settings.QH_STORE_MAX_BYTES = 0
    assert keep_store().removed == ()
    settings.QH_STORE_MAX_BYTES = 1000
    with reclaim.only_one(tmp_path):
        assert keep_store() is None
    assert len(keep_store().removed) == 1
    assert list((tmp_path / "trials").iterdir()) == []


def test_what_a_killed_worker_left_goes_when_the_next_one_starts(settings, tmp_path):
    from workers.upkeep import StoreKeeper

    settings.QH_HOME = tmp_path
    settings.QH_STORE_MAX_BYTES = 0
    # No process has this id: it is beyond what the kernel gives.
    gone = reclaim.store.label().partition(".")[2]
    left = [
        tmp_path / "staging" / f"run-99999999.{gone}-x",
        tmp_path / "trees" / f".new-99999999.{gone}-y",
    ]
    for folder in left:
        (folder / "files").mkdir(parents=True)
    keeper = StoreKeeper()
    keeper.start()
    deadline = time.monotonic() + 10
    while any(folder.exists() for folder in left) and time.monotonic() < deadline:
        time.sleep(0.02)
    keeper.ended.set()
    keeper.join(5)
    assert not any(folder.exists() for folder in left)
