from __future__ import annotations

import hashlib
import json
import unicodedata
from pathlib import Path

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from qualityhub.engine import digest
from qualityhub.engine.digest import (
    PREFIX,
    canonical_json,
    digest_environment,
    digest_json,
    digest_row,
    digest_task,
    digest_tree,
)
from qualityhub.engine.environments.model import FileEntry

VECTORS = json.loads((Path(__file__).parents[2] / "data" / "digest_vectors.json").read_text())

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-(10**30), max_value=10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=("Cs",))), inner, max_size=4)
    ),
    max_leaves=20,
)


def by_hand(kind: str, canonical: str) -> str:
    return PREFIX + hashlib.sha256(kind.encode() + b"\0" + canonical.encode()).hexdigest()


@pytest.mark.parametrize("vector", VECTORS["json"], ids=lambda vector: vector["digest"][4:12])
def test_json_vectors_hold(vector):
    assert canonical_json(vector["value"]).decode() == vector["canonical"]
    assert digest_json(vector["kind"], vector["value"]) == vector["digest"]
    assert by_hand(vector["kind"], vector["canonical"]) == vector["digest"]


@given(values)
def test_the_fast_way_gives_the_bytes_of_the_standard(value):
    assert canonical_json(value) == rfc8785.dumps(digest._exact(value))


@pytest.mark.parametrize("vector", VECTORS["trees"], ids=lambda vector: vector["digest"][4:12])
def test_tree_vectors_hold(vector):
    assert digest_tree(FileEntry(*row) for row in vector["entries"]) == vector["digest"]
    assert by_hand("tree", vector["canonical"]) == vector["digest"]


def test_task_and_environment_vectors_hold():
    for vector in VECTORS["tasks"]:
        assert digest_task(vector["layers"]) == vector["digest"]
        assert by_hand("task", vector["canonical"]) == vector["digest"]
    for vector in VECTORS["environments"]:
        assert digest_environment(vector["shared"], vector["tasks"]) == vector["digest"]
        assert by_hand("environment", vector["canonical"]) == vector["digest"]


def test_documentation_is_no_part_of_a_task():
    plain, documented = VECTORS["tasks"]
    assert "documentation" in documented["layers"]
    assert plain["digest"] == documented["digest"]


@given(st.dictionaries(st.text(st.characters(exclude_categories=("Cs",))), values, max_size=6))
def test_the_order_of_keys_does_not_count(row):
    assert digest_row(dict(reversed(row.items()))) == digest_row(row)


@given(values)
def test_a_value_survives_a_journey_through_json_text(value):
    assert canonical_json(json.loads(json.dumps(value))) == canonical_json(value)


@given(st.integers())
def test_integers_keep_every_digit(number):
    assert json.loads(canonical_json([number]))[0] in {number, str(number)}
    assert canonical_json([number]) != canonical_json([number + 1])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {"\udfff": 1}, {1}, b"x"])
def test_what_json_cannot_say_has_no_digest(value):
    with pytest.raises(ValueError):
        canonical_json({"value": value})


def test_nesting_without_end_has_no_digest():
    value: list = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(ValueError):
        canonical_json(value)


names = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=8)
entries = st.lists(
    st.builds(
        lambda name, mode, content: FileEntry(
            name, "file", mode, len(content), hashlib.sha256(content).hexdigest()
        ),
        names,
        st.integers(min_value=0, max_value=0o777),
        st.binary(max_size=8),
    ),
    max_size=6,
)


@given(entries, st.randoms(use_true_random=False))
def test_a_tree_has_no_order_and_no_normal_form_of_names(tree, random):
    shuffled = random.sample(tree, len(tree))
    decomposed = [
        FileEntry(unicodedata.normalize("NFD", e.path), e.kind, e.mode, e.size, e.sha256)
        for e in shuffled
    ]
    assert digest_tree(shuffled) == digest_tree(tree) == digest_tree(decomposed)


@given(st.integers(min_value=0, max_value=0o777))
def test_only_execute_bits_of_a_mode_count(mode):
    entry = FileEntry("a", "file", mode, 0, "")
    assert digest_tree([entry]) == digest_tree([FileEntry("a", "file", mode & 0o111, 0, "")])
    assert digest_tree([entry]) != digest_tree([FileEntry("a", "file", mode ^ 0o100, 0, "")])
