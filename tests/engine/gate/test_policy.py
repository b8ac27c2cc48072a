from __future__ import annotations

import pytest

from qualityhub.engine.errors import InvalidInputError
from qualityhub.engine.gate.policy import GatePolicy, gate_policy_from, load_gate_policy

FULL = """
[admission]
name = "strict"

[gate]
name = "release"
alpha = 0.025
confirm = "fresh"
confirm_rollouts = 16
min_tasks = 30
cluster_attribute = "repository"

[gate.margins]
domain = 0.03
overall = 0.01

[gate.budget]
domains = 0.02

[gate.groups]
code = ["code-*", "terminal"]

[gate.domains."code-*"]
tier = "critical"

[gate.domains.code-legacy]
tier = "advisory"
margin = 0.1
"""


def test_a_policy_file_is_read_with_everything_it_says(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(FULL)
    policy = load_gate_policy(path)
    assert (policy.name, policy.alpha, policy.confirm, policy.confirm_rollouts) == (
        "release",
        0.025,
        "fresh",
        16,
    )
    assert (policy.margins.domain, policy.margins.group, policy.margins.overall) == (
        0.03,
        0.015,
        0.01,
    )
    assert policy.for_domain("code-new").tier == "critical"
    assert policy.for_domain("code-legacy").tier == "advisory"
    assert policy.for_domain("code-legacy").margin == 0.1
    assert policy.for_domain("math").tier == "supporting"
    assert policy.for_domain("math").min_tasks == 30
    assert [policy.group_of(name) for name in ("code-new", "terminal", "math")] == [
        "code",
        "code",
        None,
    ]
    assert gate_policy_from(policy.as_json()) == policy


def test_the_version_follows_the_content():
    assert GatePolicy().version == gate_policy_from({}).version
    assert GatePolicy().version != gate_policy_from({"alpha": 0.01}).version
    assert gate_policy_from({"alpha": 0.01}).version.startswith("qh1:")


def test_a_file_without_a_gate_table_is_the_default(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text("[admission]\n")
    assert load_gate_policy(path) == GatePolicy()


@pytest.mark.parametrize(
    ("table", "code", "said"),
    [
        ({"margin": 0.02}, "input.unknown_key", "margins"),
        ({"margins": {"domians": 0.02}}, "input.unknown_key", "domain"),
        ({"domains": {"code": {"teir": "critical"}}}, "input.unknown_key", "tier"),
        ({"margins": {"domain": 2}}, "input.wrong_type", "0.02 is 2 points"),
        ({"margins": {"domain": 0}}, "input.wrong_type", "fraction"),
        ({"margins": {"domain": float("nan")}}, "input.wrong_type", "fraction"),
        ({"margins": {"domain": True}}, "input.wrong_type", "fraction"),
        ({"margins": 0.02}, "input.wrong_type", "a table"),
        ({"alpha": 0}, "input.wrong_type", "chance"),
        ({"alpha": "0.05"}, "input.wrong_type", "chance"),
        ({"confirm": "later"}, "input.wrong_type", "holm, fresh"),
        ({"min_tasks": 2}, "input.wrong_type", "from 10"),
        ({"min_tasks": 20.5}, "input.wrong_type", "whole number"),
        ({"groups": {"code": "code-*"}}, "input.wrong_type", "list"),
        ({"groups": {"code": []}}, "input.wrong_type", "list"),
        ({"groups": ["code"]}, "input.wrong_type", "table"),
        ({"domains": {"code": 3}}, "input.wrong_type", "a table"),
        ({"domains": {"code": {"scale": 0}}}, "input.wrong_type", "above 0"),
        ({"budget": {"domains": 0.4, "groups": 0.4}}, "input.wrong_type", "add up"),
        ({"name": 3}, "input.wrong_type", "text"),
    ],
)
def test_a_wrong_policy_names_the_key_and_what_is_expected(table, code, said):
    with pytest.raises(InvalidInputError) as caught:
        gate_policy_from(table)
    assert caught.value.code == code
    assert said in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (None, "policy.unreadable"),
        (b"[gate\n", "policy.not_toml"),
        (b"\xff\xfe", "policy.not_toml"),
        (b"[gates]\n", "input.unknown_key"),
        (b"gate = 3\n", "input.wrong_type"),
    ],
)
def test_an_unusable_policy_file_is_refused(tmp_path, content, code):
    path = tmp_path / "policy.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidInputError) as caught:
        load_gate_policy(path)
    assert caught.value.code == code
