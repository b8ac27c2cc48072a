"""The store between processes: nothing half made is seen, nothing in use is removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

import qualityhub
from qualityhub.engine.digest import digest_json
from qualityhub.engine.errors import InvalidInputError
from qualityhub.engine.sandbox import idmaps, kept, owners, reclaim, store
from qualityhub.engine.sandbox.images.names import remember_name

ROOT = Path(qualityhub.__file__).resolve().parent.parent
DAY = 86_400.0


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def start():
    """Start a process that runs a program and says when it is where it should be."""
    running = []

    def make(program, *args):
        process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + textwrap.dedent(program), *map(str, args)],
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        running.append(process)
        return process

    yield make
    for process in running:
        process.kill()
        process.communicate()


PRELUDE = """
import os, sys, time
from pathlib import Path
from qualityhub.engine.sandbox import reclaim, store
home = Path(sys.argv[1])
def say(text):
    print(text, flush=True)
"""


def make(home, name="one", kind="layers", size=1000, used=0.0):
    """Publish a tree whose files all hold its name."""
    digest = digest_json("test", name)
    with store.fresh(home, kind) as place:
        place.mkdir()
        for number in range(3):
            (place / str(number)).write_text(name + "x" * size)
        path = store.publish(home, kind, digest, place, {"name": name})
    if used:
        stamp = time.time() - used
        os.utime(path.with_name(path.name + ".json"), (stamp, stamp))
    return digest, path


def left(home, kind="layers"):
    return sorted(path.name for path in (home / kind).iterdir())


# One process ----------------------------------------------------------------------------------


def test_a_published_tree_is_found_with_its_facts_and_its_size(home):
    digest, path = make(home)
    found = store.lookup(home, "layers", digest)
    assert found is not None
    assert found[0] == path
    assert (found[1]["name"], found[1]["digest"]) == ("one", digest)
    assert found[1]["bytes"] >= 3 * 1000
    assert left(home) == [path.name, path.name + ".json"]


def test_what_is_there_already_wins_and_is_not_touched(home):
    digest, path = make(home)
    before = path.stat().st_ino
    make(home)
    assert path.stat().st_ino == before
    assert store.lookup(home, "layers", digest) is not None


@pytest.mark.parametrize("step", ["facts alone", "folder alone"])
def test_a_crash_between_the_steps_leaves_nothing_that_counts(home, step):
    digest, path = make(home)
    if step == "facts alone":
        path.rename(home / "elsewhere")
    else:
        path.with_name(path.name + ".json").unlink()
    assert store.lookup(home, "layers", digest) is None
    make(home)
    assert store.lookup(home, "layers", digest) is not None
    assert (path / "0").read_text().startswith("one")


def test_a_use_is_noted_to_the_minute(home):
    digest, path = make(home, used=DAY)
    record = path.with_name(path.name + ".json")
    assert time.time() - record.stat().st_mtime > DAY - 10
    store.lookup(home, "layers", digest)
    assert time.time() - record.stat().st_mtime < 10


def test_a_pin_of_what_is_gone_is_none(home):
    _, path = make(home)
    assert store.pin(home / "layers/missing") is None
    held = store.pin(path)
    assert held is not None
    held.release()
    held.release()


def test_many_users_of_one_tree_share_one_open_file_and_each_holds_it(home):
    _, path = make(home, used=DAY)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    pins = [store.pin(path) for _ in range(50)]
    assert len(os.listdir("/proc/self/fd")) == before + 1  # noqa: PTH208
    while pins:
        assert reclaim.prune(home, max_bytes=0).removed == ()
        pins.pop().release()
    assert len(reclaim.prune(home, max_bytes=0).removed) == 1


def test_a_tree_made_anew_at_the_same_place_is_pinned_anew(home):
    _, path = make(home)
    first = store.pin(path)
    path.rename(home / "elsewhere")
    make(home)
    second = store.pin(path)
    assert first is not None
    first.release()
    assert reclaim.prune(home, max_bytes=0).removed == ()
    second.release()
    assert len(reclaim.prune(home, max_bytes=0).removed) == 1


def test_more_trees_than_open_files_raise_the_limit_or_say_so(home, start):
    program = """
    import resource
    trees = [home / str(n) for n in range(200)]
    for tree in trees:
        tree.mkdir(parents=True)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, int(sys.argv[2])))
    try:
        say(len([store.pin(tree) for tree in trees]))
    except Exception as error:
        say(error.code)
    """
    assert start(program, home / "enough", 4096).stdout.readline() == "200\n"
    assert start(program, home / "few", 100).stdout.readline() == "store.open_files\n"


def test_a_store_of_other_ids_is_refused_by_name(home, monkeypatch):
    make(home)
    theirs = idmaps.IdMaps(((0, 5, 1),), ((0, 5, 1),), {}, 4_000_000, ranged=True)
    monkeypatch.setattr(idmaps, "current", lambda: theirs)
    with pytest.raises(InvalidInputError) as caught:
        make(home, "two")
    assert caught.value.code == "store.other_ids"
    assert "4000000" in caught.value.message
    assert "QH_HOME" in caught.value.hint
    with pytest.raises(InvalidInputError):
        reclaim.prune(home, max_bytes=0)


# Pruning --------------------------------------------------------------------------------------


def test_what_was_unused_for_longest_goes_first_until_the_rest_fits(home):
    for number in range(4):
        make(home, f"t{number}", kind="layers" if number % 2 else "rehearsed", used=number * DAY)
    each = make(home, "t0", kind="rehearsed")[1].with_suffix(".json")
    size = store.read_json(each)["bytes"]
    done = reclaim.prune(home, max_bytes=2 * size)
    assert [item.kind for item in done.removed] == ["layers", "rehearsed"]
    assert done.bytes == done.left_bytes == 2 * size
    assert reclaim.prune(home, max_bytes=2 * size).removed == ()


def test_what_was_not_used_for_so_long_goes_whatever_fits(home):
    make(home, "old", used=31 * DAY)
    digest, _ = make(home, "new", used=29 * DAY)
    done = reclaim.prune(home, unused_s=30 * DAY)
    assert len(done.removed) == 1
    assert store.lookup(home, "layers", digest) is not None


def test_a_dry_run_says_the_same_and_removes_nothing(home):
    for number in range(3):
        make(home, f"t{number}", used=number * DAY)
    before = left(home)
    told = reclaim.prune(home, max_bytes=0, dry_run=True)
    assert left(home) == before
    done = reclaim.prune(home, max_bytes=0)
    assert (done.removed, done.bytes) == (told.removed, told.bytes)
    assert left(home) == []


def test_images_with_a_name_and_young_downloads_stay(home):
    digest, image = make(home, "base", kind="images", used=90 * DAY)
    remember_name(home, "lab/base", digest, "sha256:0")
    _, plain = make(home, "plain", kind="images", used=90 * DAY)
    _, young = make(home, "young", kind="distributions")
    done = reclaim.prune(home, max_bytes=0)
    assert [item.name for item in done.removed] == [plain.name]
    assert [item.name for item in done.in_use] == [young.name]
    assert image.exists()


def test_results_builds_and_locks_of_dependencies_are_pruned_too(home):
    for folder, name in (
        ("trials/ab/cd", "abcd1"),
        ("images/builds", "aa.json"),
        ("images/builds", "aa.log.zst"),
        ("resolved", "bb.json"),
    ):
        (home / folder).mkdir(parents=True, exist_ok=True)
        (home / folder / name).write_text("x" * 5000)
    counts = {item.kind: item.count for item in reclaim.summarize(home) if item.count}
    assert counts == {"images/builds": 1, "resolved": 1, "trials": 1}
    done = reclaim.prune(home, max_bytes=0)
    assert len(done.removed) == 3
    assert list((home / "trials").iterdir()) == []
    assert list((home / "images/builds").iterdir()) == []


def test_another_room_adds_its_own_kind(home, monkeypatch):
    monkeypatch.setattr(kept, "KINDS", [*kept.KINDS, kept.Files("blobs", "evidence")])
    monkeypatch.setattr(reclaim, "KINDS", kept.KINDS)
    (home / "blobs/aa").mkdir(parents=True)
    (home / "blobs/aa/x").write_text("evidence")
    assert {item.kind for item in reclaim.summarize(home) if item.count} == {"blobs"}
    assert [item.kind for item in reclaim.prune(home, max_bytes=0).removed] == ["blobs"]


def test_growth_beyond_the_cap_is_pruned_at_once_and_no_growth_is_not(home, monkeypatch):
    make(home, "old", used=DAY)
    monkeypatch.setenv(reclaim.VARIABLE, "20 KiB")
    with reclaim.after_growth(home):
        pass
    assert len(left(home)) == 2
    with reclaim.after_growth(home):
        digest, path = make(home, "new")
        held = store.pin(path)
    assert left(home) == [path.name, path.name + ".json"]
    assert held is not None
    assert store.lookup(home, "layers", digest) is not None


@pytest.mark.parametrize(
    ("text", "size"),
    [("20G", 20 * 2**30), ("1.5 MiB", 3 * 2**19), ("512", 512), ("0", 0), ("7kb", 7 * 2**10)],
)
def test_sizes_are_read_as_people_write_them(text, size):
    assert reclaim.size_from(text) == size


@pytest.mark.parametrize("text", ["", "big", "-1", "1X", "1e9", "9" * 20])
def test_what_is_no_size_is_refused_by_the_name_of_the_setting(text):
    with pytest.raises(InvalidInputError, match="QH_STORE_MAX_BYTES"):
        reclaim.size_from(text, reclaim.VARIABLE)


# Between processes ----------------------------------------------------------------------------


def test_what_another_process_uses_stays_until_that_process_is_gone(home, start):
    _, path = make(home, used=DAY)
    user = start("held = store.pin(Path(sys.argv[2])); say('held'); input()", home, path)
    assert user.stdout.readline() == "held\n"
    done = reclaim.prune(home, max_bytes=0)
    assert (len(done.removed), len(done.in_use)) == (0, 1)
    assert sum(item.in_use for item in reclaim.summarize(home)) == 1
    assert (path / "0").exists()
    user.send_signal(signal.SIGKILL)
    user.wait()
    assert len(reclaim.prune(home, max_bytes=0).removed) == 1
    assert left(home) == []


BUILD = """
with store.fresh(home, "layers") as place:
    place.mkdir()
    (place / "half").write_text("half")
    say("building")
    input()
"""


def test_what_another_process_is_building_is_not_swept_and_what_a_killed_one_built_is(home, start):
    builder = start(BUILD, home)
    assert builder.stdout.readline() == "building\n"
    assert reclaim.prune(home, max_bytes=0).swept == 0
    (half,) = left(home)
    builder.send_signal(signal.SIGKILL)
    builder.wait()
    assert left(home) == [half]
    assert reclaim.prune(home, max_bytes=0).swept == 1
    assert left(home) == []


def test_a_builder_sweeps_what_a_killed_one_left(home, start):
    builder = start(BUILD, home)
    builder.stdout.readline()
    builder.kill()
    builder.wait()
    _, path = make(home)
    assert left(home) == [path.name, path.name + ".json"]


def test_a_killed_builder_holds_no_lock(home, start):
    builder = start("with store.locked(home, 'layers', 'x'): say('in'); input()", home)
    assert builder.stdout.readline() == "in\n"
    order = []

    def wait():
        with store.locked(home, "layers", "x"):
            order.append("ours")

    waiting = threading.Thread(target=wait)
    waiting.start()
    waiting.join(0.2)
    assert order == []
    builder.kill()
    waiting.join(10)
    assert order == ["ours"]


def test_a_process_killed_while_it_removed_leaves_a_name_that_is_swept(home, start):
    digest, path = make(home, used=DAY)
    killed = start(
        """
        from qualityhub.engine.sandbox import kept
        kept.remove_tree = lambda path: (say("renamed"), time.sleep(60))
        reclaim.prune(home, max_bytes=0)
        """,
        home,
    )
    assert killed.stdout.readline() == "renamed\n"
    assert store.lookup(home, "layers", digest) is None
    killed.kill()
    killed.wait()
    (trash,) = left(home)
    assert trash.startswith(".trash-")
    make(home)
    assert (path / "0").exists()
    assert reclaim.prune(home).swept == 1
    assert left(home) == [path.name, path.name + ".json"]


def test_two_builders_of_one_thing_by_two_questions_leave_one_whole_tree(home, start):
    program = """
    from qualityhub.engine.digest import digest_json
    digest = digest_json("test", "same")
    say("ready"); input()
    for _ in range(30):
        with store.fresh(home, "images") as place:
            place.mkdir()
            for n in range(20):
                (place / str(n)).write_text("whole")
            path = store.publish(home, "images", digest, place, {})
        held = store.pin(path)
        assert held is not None
        assert all((path / str(n)).read_text() == "whole" for n in range(20))
    say(path.stat().st_ino)
    """
    builders = [start(program, home) for _ in range(3)]
    for builder in builders:
        assert builder.stdout.readline() == "ready\n"
    answers = [builder.communicate("go\n", timeout=60)[0] for builder in builders]
    assert len(set(answers)) == 1
    assert answers[0].strip()
    assert len(left(home, "images")) == 2


def test_readers_that_pin_never_see_a_tree_go_while_others_build_and_prune(home, start):
    worker = """
    import random
    from qualityhub.engine.digest import digest_json
    say("ready"); input()
    end, used, missed = time.monotonic() + 2.5, 0, 0
    while time.monotonic() < end:
        name = f"t{random.randrange(4)}"
        digest = digest_json("test", name)
        found = store.lookup(home, "layers", digest)
        if found is None:
            with store.locked(home, "layers", digest), store.fresh(home, "layers") as place:
                place.mkdir()
                for n in range(10):
                    (place / str(n)).write_text(name * 100)
                path = store.publish(home, "layers", digest, place, {})
        else:
            path = found[0]
        held = store.pin(path)
        if held is None:
            missed += 1
            continue
        for n in range(10):
            assert (path / str(n)).read_text() == name * 100
            time.sleep(0.0005)
        used += 1
        held.release()
        time.sleep(random.random() * 0.05)
    say(used)
    """
    pruner = """
    say("ready"); input()
    end, removed = time.monotonic() + 2.5, 0
    while time.monotonic() < end:
        removed += len(reclaim.prune(home, max_bytes=0).removed)
        time.sleep(0.005)
    say(removed)
    """
    crew = [start(worker, home) for _ in range(3)] + [start(pruner, home)]
    for process in crew:
        assert process.stdout.readline() == "ready\n"
    outputs = [process.communicate("go\n", timeout=60)[0].strip() for process in crew]
    assert [process.returncode for process in crew] == [0] * 4
    assert all(int(text) > 0 for text in outputs), outputs
    reclaim.prune(home, max_bytes=0)
    assert left(home) == []


def test_the_staged_files_of_a_killed_run_are_swept(home, start):
    program = """
    import tempfile
    from qualityhub.engine.sandbox.owners import label
    (home / "staging").mkdir(parents=True)
    made = tempfile.mkdtemp(dir=home / "staging", prefix=f"run-{label()}-")
    (Path(made) / "f").write_text("x")
    say("staged"); input()
    """
    runner = start(program, home)
    assert runner.stdout.readline() == "staged\n"
    assert reclaim.prune(home).swept == 0
    runner.kill()
    runner.wait()
    assert reclaim.prune(home).swept == 1
    assert left(home, "staging") == []


# Labels ---------------------------------------------------------------------------------------


def test_a_label_of_a_living_process_is_alive_and_of_another_with_its_number_is_not():
    mine = owners.label()
    assert owners.alive(mine) is True
    pid, began, rest = mine.split(".", 2)
    assert owners.alive(f"{pid}.{int(began) + 1}.{rest}") is False
    assert owners.alive(f"999999999.{began}.{rest}") is False
    assert owners.alive(f"{pid}.{began}.another-boot.1") is None
    assert owners.alive("run") is None


def test_a_process_that_nobody_waited_for_is_gone(start, tmp_path):
    process = start("from qualityhub.engine.sandbox.owners import label; say(label())", tmp_path)
    text = process.stdout.readline().strip()
    deadline = time.monotonic() + 10
    while owners.alive(text) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert owners.alive(text) is False
    assert process.returncode is None


def test_what_bears_no_label_is_left_alone_while_it_is_young_or_locked(home):
    folder = home / "layers"
    (folder / ".new-abc").mkdir(parents=True)
    assert list(owners.swept(folder)) == []
    old = time.time() - 2 * DAY
    os.utime(folder / ".new-abc", (old, old))
    held = store.pin(folder / ".new-abc")
    assert held is not None
    assert list(owners.swept(folder)) == []
    held.release()
    assert list(owners.swept(folder)) == [folder / ".new-abc"]


def test_an_old_lock_is_swept_and_whoever_waited_for_it_locks_the_new_one(home, start):
    holder = start("with store.locked(home, 'layers', 'x'): say('in'); input()", home)
    assert holder.stdout.readline() == "in\n"
    (path,) = (home / "locks").iterdir()
    old = time.time() - 2 * DAY
    os.utime(path, (old, old))
    reclaim.prune(home)
    assert path.exists()
    holder.communicate("go\n", timeout=10)
    reclaim.prune(home)
    assert not path.exists()
    with store.locked(home, "layers", "x"):
        assert path.exists()
