from __future__ import annotations

from qualityhub.engine.sandbox import reclaim


def test_the_nightly_task_keeps_the_store_below_its_cap(settings, tmp_path):
    from workers.tasks.store import prune

    settings.QH_HOME = tmp_path
    results = tmp_path / "trials/ab/cd"
    results.mkdir(parents=True)
    (results / "abcd").write_text("x" * 10_000)
    settings.QH_STORE_MAX_BYTES = 0
    assert prune()["removed"] == 0
    settings.QH_STORE_MAX_BYTES = 1000
    with reclaim.only_one(tmp_path):
        assert prune()["removed"] == 0
    assert prune()["removed"] == 1
    assert list((tmp_path / "trials").iterdir()) == []
