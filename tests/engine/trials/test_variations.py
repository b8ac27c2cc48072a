"""What each change does to a command, as values."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from qualityhub.engine.environments.model import Environment
from qualityhub.engine.errors import InvalidInputError
from qualityhub.engine.sandbox.port import Command, Completed, Limits, Mount
from qualityhub.engine.sandbox.props import CLOCK_TARGET, clock_library, fits_machine
from qualityhub.engine.trials.drivers.changes import task_changes, with_changes
from qualityhub.engine.trials.model import BASELINE, Observation, Variation
from qualityhub.engine.trials.variations import (
    Props,
    assemble,
    change_command,
    check_variation,
    clock_shift_s,
    names_of,
    parts_of,
    patience,
    payload_words,
    refused_changes,
    screens,
    singles,
)

FAMILIES = ("function", "scorer", "episode", "task")
PROPS = Props(clock=Path("/host/clock.so"), locale=Path("/host/locale"), cpus=4)
COMMAND = Command(("python",), {"TZ": "UTC"}, (Mount("/qh/env", Path("/host/env"), "overlay"),))
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def environment(family, entry=None):
    return Environment("demo", family, family, "qh1:x", (), entry=entry or {"file": "scorer.py"})


def test_a_baseline_changes_nothing():
    assert change_command(COMMAND, BASELINE, "scorer", Props()) == COMMAND
    assert change_command(COMMAND, Variation(hash_seed=3, seed=4), "scorer", Props()) == COMMAND
    assert payload_words(Variation(hash_seed=3, seed=4), {}, 0.0) == {}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_world_like_change_is_in_the_command_and_the_rest_in_the_payload(family):
    for variation in singles(environment(family)):
        changed = change_command(COMMAND, variation, family, PROPS)
        (name,) = variation.changes()
        worldly = name not in {"manner", "load"}
        shown = replace(changed, limits=COMMAND.limits) != COMMAND
        assert shown is (worldly or family == "task"), variation
        if family != "task":
            assert name in payload_words(variation, {}, 0.0)["changes"]


def test_the_clock_is_preloaded_and_the_monotonic_one_left_alone():
    changed = change_command(COMMAND, Variation(clock="+1d"), "scorer", PROPS)
    assert changed.env["LD_PRELOAD"] == CLOCK_TARGET
    assert changed.env["FAKETIME"] == "+86400"
    assert changed.env["DONT_FAKE_MONOTONIC"] == "1"
    assert Mount(CLOCK_TARGET, PROPS.clock) in changed.mounts
    # A foreign image may have another C library: its own program tries it first.
    foreign = change_command(COMMAND, Variation(clock="+1d"), "task", PROPS)
    assert "LD_PRELOAD" not in foreign.env
    assert foreign.env["QH_CLOCK"] == "+86400"


@pytest.mark.parametrize(
    ("clock", "seconds"),
    [
        ("+1d", 86_400),
        ("-2d", -172_800),
        ("+3650d", 3650 * 86_400),
        ("@2026-12-02", 2 * 86_400),
        ("@2028-02-29", 456 * 86_400),
        ("@2026-11-30 12:00:10", 10),
    ],
)
def test_clocks_are_shifts(clock, seconds):
    assert clock_shift_s(clock, NOON) == seconds


@pytest.mark.parametrize("clock", ["1d", "+1y", "@2031-02-29", "@tomorrow", "+9999999d", "+1d\n"])
def test_what_is_no_clock_is_refused(clock):
    with pytest.raises(InvalidInputError) as caught:
        clock_shift_s(clock, NOON)
    assert caught.value.code == "variation.clock"


def test_what_this_host_cannot_lend_is_refused_and_left_out():
    wanted = Variation(clock="+1d", cpus=2, network=True, umask=0o077)
    bare = Props(cpus=2)
    refused = refused_changes(wanted, bare)
    assert set(refused) == {"clock", "cpus", "network"}
    changed = change_command(COMMAND, wanted, "scorer", bare)
    assert (changed.cpus, changed.network, changed.umask) == (0, False, 0o077)
    assert changed.env == COMMAND.env
    assert set(payload_words(wanted, refused, 0.0)["changes"]) == {"umask"}
    assert refused_changes(wanted, replace(PROPS, network=True)) == {}


@pytest.mark.parametrize("family", FAMILIES)
def test_two_screens_try_together_what_is_tried_alone(family):
    tried = {part for one in singles(environment(family)) for part in parts_of(one)}
    together = screens(environment(family))
    assert len(together) == 2
    for screen in together:
        assert tried.issuperset(parts_of(screen))
        assert assemble(parts_of(screen)) == screen
        check_variation(screen)


def test_what_a_family_does_not_have_is_not_varied():
    def fields(family, entry=None):
        return {name for one in singles(environment(family, entry)) for name in one.changes()}

    assert "order" in fields("scorer")
    assert "order" not in fields("scorer", {"name": "generated"})
    assert {"home", "folder", "order"}.isdisjoint(fields("task"))
    manners = {one.manner for one in singles(environment("episode"))}
    assert "interleaved" in manners
    assert "reversed" not in manners


def test_files_are_created_anew_from_a_read_only_original():
    changed = change_command(COMMAND, Variation(order="reversed"), "scorer", PROPS)
    assert changed.mounts == (
        Mount("/qh/origin", Path("/host/env"), "ro"),
        Mount("/qh/env", None, "scratch"),
    )


def test_a_changed_trial_may_take_longer():
    assert patience(BASELINE) == 1
    assert patience(Variation(load=2, manner="repeated+thread")) == 4
    assert patience(Variation(load=8, manner="many")) == 10
    limits = Limits(wall_s=10, cpu_s=15)
    changed = change_command(replace(COMMAND, limits=limits), Variation(load=2), "scorer", PROPS)
    assert (changed.limits.wall_s, changed.limits.cpu_s) == (20, 30)


def test_changes_are_named_for_people():
    assert names_of(BASELINE) == "nothing"
    assert names_of(Variation(umask=0o077, cpus=1)) == "umask 077, CPU count 1"
    assert names_of(Variation(manner="reversed"), "task") == "opposite order of tests"
    assert names_of(Variation(manner="reversed"), "scorer") != names_of(
        Variation(manner="reversed"), "task"
    )


def test_what_took_hold_is_said_and_what_was_never_spoken_of_is_in_neither_list():
    variation = Variation(clock="+1d", umask=0o077, cpus=1, hash_seed=2)
    said = {"applied": ["clock", "umask", 7, "home"], "not_applied": {"cpus": "few\x1b", "x": "y"}}
    seen = with_changes(Observation("reward", 1.0), variation, said)
    assert seen.facts == {"applied": ["clock", "umask"], "not_applied": {"cpus": "few?"}}
    escaped = with_changes(Observation("reward", 1.0), variation, said, ["it starts x"])
    assert escaped.facts["applied"] == ["umask"]
    assert escaped.facts["not_applied"]["clock"] == "it starts x"
    silent = with_changes(Observation("timeout"), variation, {})
    assert silent.facts == {"applied": []}
    assert with_changes(Observation("reward"), BASELINE, said).facts == {}


@pytest.mark.parametrize(
    ("output", "applied"),
    [
        (b"umask 0002\ncpus Cpus_allowed_list:1\ntimezone +0545\n", ["cpus", "timezone", "umask"]),
        (b"umask 2\ncpus Cpus_allowed_list:0-1,3\ntimezone +0000\n", ["umask"]),
        (b"umask 0022\numask 0002\n\xff\xfe junk\n", []),
        (b"", []),
    ],
)
def test_a_task_program_says_what_its_world_shows(output, applied):
    variation = Variation(umask=0o002, cpus=1, timezone="Asia/Kathmandu")

    completed = Completed(0, None, False, False, output, b"", 0, {}, 1.0, 1.0, 0)
    said = task_changes(variation, completed)
    assert sorted(said["applied"]) == applied
    assert set(said["applied"]) | set(said["not_applied"]) == set(variation.changes())


def test_the_library_is_taken_only_for_this_machine(tmp_path):
    library = clock_library()
    assert library is not None
    other = tmp_path / "other.so"
    content = bytearray(library.read_bytes()[:64])
    content[18:20] = b"\xf3\x00"
    other.write_bytes(content)
    assert fits_machine(library)
    assert not fits_machine(other)
    other.write_bytes(b"\x7fELF")
    assert not fits_machine(other)
    assert not fits_machine(tmp_path / "none")
