"""The same task by container and from its snapshot by bubblewrap: the same rewards and verdict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from qualityhub.engine import inspect
from qualityhub.engine.inspect import InspectOptions, inspect_source
from qualityhub.engine.policy import AdmissionPolicy
from qualityhub.engine.sandbox.conformance import Kit, examine
from qualityhub.engine.sandbox.engine import engine_address
from qualityhub.engine.sandbox.trees import remove_tree

TASKS = Path(__file__).parents[2] / "data" / "container"
NAMES = sorted(path.parent.name for path in TASKS.glob("*/task.toml"))

pytestmark = pytest.mark.container


class Quiet:
    def stage(self, text):
        pass

    def trials(self, done, total, cached):
        pass

    def log(self, text):
        pass


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What each provider saw: the report, and outcome, reward and facts by task and probe."""
    if not engine_address():
        pytest.skip("no container engine answers, so no image of a task can be built")
    home = tmp_path_factory.mktemp("home")
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        take = inspect._Run.take
        for provider in ("bwrap", "container"):
            observed = {}

            def note(run, trial, result, observed=observed):
                for ask, one in zip(trial.asks, result.observations, strict=True):
                    observed[ask] = one
                return take(run, trial, result)

            patch.setattr(inspect._Run, "take", note)
            options = InspectOptions(
                policy=replace(AdmissionPolicy(), effort="quick"), home=home, sandbox=provider
            )
            report = inspect_source(str(TASKS), options, Quiet())
            found[provider] = report, observed
    found["home"] = home
    yield found
    # Several images' files: too much to be kept for looking at it later.
    remove_tree(home)


def of(seen, provider, name):
    """Return what a provider saw of a task; skip where this host could not make its image."""
    report, observed = seen[provider]
    mine = {ask: one for ask, one in observed.items() if ask.task == name}
    if not mine:
        reasons = {row.reason for row in report.not_measured if name in row.tasks}
        pytest.skip(f"the image of {name} could not be made here: {'; '.join(sorted(reasons))}")
    return mine


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("provider", ["bwrap", "container"])
def test_the_reference_is_right_and_an_untouched_container_is_not(seen, provider, name):
    rewards = {ask.probe: one.reward for ask, one in of(seen, provider, name).items()}
    assert (rewards["oracle"], rewards["nop"]) == (1.0, 0.0), of(seen, provider, name)


@pytest.mark.parametrize("name", NAMES)
def test_both_see_the_same(seen, name):
    facts = [
        {
            ask: (one.outcome, one.reward, one.reward_type, dict(one.facts))
            for ask, one in of(seen, provider, name).items()
        }
        for provider in ("bwrap", "container")
    ]
    assert facts[0] == facts[1]
    assert facts[0]


def test_both_come_to_the_same_verdict(seen):
    for name in NAMES:
        of(seen, "bwrap", name)
    (snapshot, _), (container, _) = seen["bwrap"], seen["container"]
    assert not container.environment["provisional"]
    if snapshot.environment["provisional"]:
        pytest.skip("owners in the snapshot are not certain for this user, so its verdict waits")
    assert snapshot.verdict == container.verdict == "admitted"
    assert [(t.id, t.verdict) for t in snapshot.tasks] == [
        (t.id, t.verdict) for t in container.tasks
    ]
    assert [f.fingerprint for f in snapshot.findings] == [f.fingerprint for f in container.findings]
    assert [(r.code, r.status) for r in snapshot.rules] == [
        (r.code, r.status) for r in container.rules
    ]


@pytest.mark.parametrize(
    "name",
    [
        "file_ownership_is_real",
        "set_id_programs_gain_nothing",
        "collect_follows_no_link",
        "overlays_are_discarded",
        "whole_tree_dies_on_timeout",
        "no_new_privileges",
        "no_host_sockets",
    ],
)
@pytest.mark.parametrize("provider", ["bwrap", "container"])
def test_a_world_of_an_image_holds_what_any_world_holds(seen, provider, name, tmp_path, request):
    of(seen, provider, "pip")
    python = "usr/local/bin/python3"
    trees = (seen["home"] / "images").glob("[0-9a-f]*")
    base = next(tree for tree in trees if (tree / python).is_file())
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    kit = Kit(request.getfixturevalue(provider), f"/{python}", tmp_path, base=base)
    (held,) = examine(kit, (name,))
    if not kit.sandbox.capability().ownership and held.outcome == "soft":
        return
    assert held.outcome == "pass", held.reason
