from __future__ import annotations

import pytest

from qualityhub.engine.environments.manifest import read_manifest
from qualityhub.engine.environments.model import RewardSpec
from qualityhub.engine.errors import UnreadablePackageError


@pytest.fixture
def manifest(tmp_path):
    def write(text: str):
        (tmp_path / "qualityhub.toml").write_text(text)
        return read_manifest(tmp_path)

    return write


def refused(manifest, text):
    with pytest.raises(UnreadablePackageError) as caught:
        manifest(text)
    assert "qualityhub.toml" in caught.value.message
    assert caught.value.hint
    return caught.value


WAIVER = '[[waivers]]\ncode = "VER001"\nreason = "r"\nuntil = 2027-01-31\n'


def test_no_manifest_asks_for_nothing(tmp_path):
    empty = read_manifest(tmp_path)
    assert not empty.present
    assert (empty.layer, empty.requests, empty.seedable) == ({}, {}, True)
    assert empty.reward(RewardSpec()) == RewardSpec()


@pytest.mark.parametrize(
    ("text", "key", "near"),
    [
        ("[enviroment]\n", "enviroment", "environment"),
        ("[environment]\nentrypoint = 'a'\n", "entrypoint", "entry"),
        ("[environment]\nreward = { rnage = [0, 1] }\n", "rnage", "range"),
        ("[rules]\nignored = []\n", "ignored", "ignore"),
        (WAIVER + "tsk = 'a'\n", "tsk", "task"),
    ],
)
def test_an_unknown_key_is_an_error_with_the_nearest_known_one(manifest, text, key, near):
    error = refused(manifest, text)
    assert error.code == "package.unknown_key"
    assert repr(key) in error.message
    assert repr(near) in error.hint


@pytest.mark.parametrize(
    "text",
    [
        "[environment]\nname = 5\n",
        "[environment]\nname = ''\n",
        '[environment]\nname = "a\\u001bb"\n',
        f"[environment]\ndomain = '{'x' * 201}'\n",
        "[environment]\ndependencies = 'numpy'\n",
        "[environment]\nseedable = 'no'\n",
        "[environment]\neffort = 'much'\n",
        "[environment]\nkwargs = 5\n",
        "[environment]\nreward = { range = [1, 0] }\n",
        "[environment]\nreward = { range = [0] }\n",
        "[environment]\nreward = { range = ['0', 1] }\n",
        "[environment]\nreward = { range = [nan, 1] }\n",
        "[environment]\nreward = { success = inf }\n",
        f"[environment]\nreward = {{ success = {'9' * 400} }}\n",
        "[rules]\nignore = ['everything']\n",
        "waivers = 5\n",
        WAIVER.replace("2027-01-31", "'soon'"),
        WAIVER.replace("2027-01-31", "5"),
        WAIVER.replace("VER001", "VER"),
    ],
)
def test_a_wrong_type_is_an_error(manifest, text):
    assert refused(manifest, text).code == "package.wrong_type"


@pytest.mark.parametrize("line", ['code = "VER001"', 'reason = "r"', "until = 2027-01-31"])
def test_a_waiver_names_code_reason_and_end(manifest, line):
    assert refused(manifest, WAIVER.replace(line + "\n", "")).code == "package.missing_key"


def test_dependencies_are_declared_in_one_way(manifest):
    text = "[environment]\ndependencies = []\nrequirements = 'r.txt'\n"
    assert refused(manifest, text).code == "package.contradiction"


@pytest.mark.parametrize("until", ["2027-01-31", '"2027-01-31"', "2027-01-31T10:00:00Z"])
def test_the_end_of_a_waiver_is_a_date(manifest, until):
    read = manifest(WAIVER.replace("2027-01-31", until))
    assert read.requests["waivers"] == [
        {"code": "VER001", "task": None, "reason": "r", "until": "2027-01-31"}
    ]


@pytest.mark.parametrize(
    ("reward", "expected"),
    [
        ("{ range = [0, 1] }", RewardSpec(0.0, 1.0, 1.0, declared=True)),
        ("{ range = [-inf, 500], success = 475 }", RewardSpec(None, 500.0, 475.0, declared=True)),
        ("{ range = [0, 10] }", RewardSpec(0.0, 10.0, 10.0, declared=True)),
        ("{ success = 0.5 }", RewardSpec(0.0, 1.0, 0.5, declared=False)),
    ],
)
def test_a_declared_reward_replaces_the_assumed_one(manifest, reward, expected):
    assert manifest(f"[environment]\nreward = {reward}\n").reward(RewardSpec()) == expected


def test_requests_and_labels_are_no_part_of_the_layer(manifest):
    read = manifest(
        "[environment]\nname = 'n'\ndomain = 'd'\neffort = 'quick'\nadapter = 'scorer'\n"
        "python = '>=3.11'\nkwargs = { since = 2020-01-01, limit = inf }\n[rules]\nselect = ['VER']\n"
    )
    assert read.layer == {"python": ">=3.11", "kwargs": {"since": "2020-01-01", "limit": "inf"}}
    assert read.requests == {"rules": {"select": ["VER"]}, "effort": "quick"}
