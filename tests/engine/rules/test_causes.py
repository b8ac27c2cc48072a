"""The search for the smallest cause, against made-up environments that answer at once."""

import random

import pytest

from qualityhub.engine.environments.model import Environment, Task
from qualityhub.engine.policy import AdmissionPolicy
from qualityhub.engine.rules.catalogue import CATALOGUE
from qualityhub.engine.rules.causes import explore
from qualityhub.engine.rules.model import Context, Found, Unmeasured
from qualityhub.engine.trials.model import BASELINE, Ask, Observation, Variation, World
from qualityhub.engine.trials.variations import manners, parts_of, screens, singles

TASK = Task("t", {}, "qh1:t")
CODES = ("DET004", "DET005", "DET006", "DET007")


def observed(variation, reward=1.0, refused=(), **facts):
    applied = [name for name in variation.changes() if name not in refused]
    facts = {"applied": applied, "not_applied": dict.fromkeys(refused, "cannot"), **facts}
    return Observation("reward", reward, facts=facts)


class Made:
    """Answers whatever is asked, round by round, as an inspection does."""

    def __init__(self, answer, family="function", effort="standard"):
        self.answer = answer
        self.seen = {}
        self.environment = Environment("demo", family, family, "qh1:x", (TASK,))
        if family == "scorer":
            self.environment = Environment(
                "demo", family, family, "qh1:x", (TASK,), entry={"file": "scorer.py"}
            )
        self.context = Context(
            self.environment, {"": World("ready")}, AdmissionPolicy(effort=effort), self.seen.get
        )
        self.rounds = 0

    def settle(self, wanted):
        while True:
            missing = [ask for ask in dict.fromkeys(wanted()) if ask not in self.seen]
            if not missing:
                return self
            self.rounds += 1
            assert self.rounds < 40
            self.seen.update({ask: self.answer(ask) for ask in missing})

    def explored(self):
        self.settle(lambda: explore(self.context, TASK, "oracle").asks)
        return explore(self.context, TASK, "oracle")

    def judged(self):
        """Return (code, item) of everything that the four rules say."""
        rules = [CATALOGUE[code] for code in CODES]
        self.settle(lambda: [ask for rule in rules for ask in rule.asks(self.context, TASK)])
        return [(rule.code, item) for rule in rules for item in rule.check_task(self.context, TASK)]


def causes(explored):
    return [parts_of(cause.variation) for cause in explored.causes]


def when(*parts):
    """Return an answer that is another one exactly where all the parts are changed."""

    def answer(ask):
        on = all(
            value in manners(ask.variation)
            if name == "manner"
            else getattr(ask.variation, name) == value
            for name, value in parts
        )
        return observed(ask.variation, 0.0 if on else 1.0)

    return answer


def test_a_sound_task_costs_two_screens_beside_its_baseline():
    world = Made(lambda ask: observed(ask.variation))
    explored = world.explored()
    assert explored.stable
    assert not explored.causes
    assert not explored.refused
    around, use = screens(world.environment)
    assert list(world.seen) == [
        Ask("t", "oracle"),
        Ask("t", "oracle", repeat=1),
        Ask("t", "oracle", around),
        Ask("t", "oracle", use),
    ]


@pytest.mark.parametrize("family", ["function", "scorer", "task"])
def test_any_single_cause_is_found_alone_by_its_own_rule(family):
    sample = Made(lambda ask: observed(ask.variation), family)
    owner = {name: code for code in CODES for name in CATALOGUE[code].fields}
    for part in [part for screen in screens(sample.environment) for part in parts_of(screen)]:
        world = Made(when(part), family)
        assert causes(world.explored()) == [(part,)]
        assert world.rounds <= 8
        found = [(code, item) for code, item in world.judged() if isinstance(item, Found)]
        assert [code for code, _ in found] == [owner[part[0]]] * len(found)
        assert found


def test_two_causes_are_two_findings():
    first, second = when(("timezone", "Asia/Kathmandu")), when(("manner", "repeated"))

    def answer(ask):
        return observed(ask.variation, min(first(ask).reward, second(ask).reward))

    found = Made(answer).judged()
    assert [code for code, _ in found] == ["DET005", "DET007"]


@pytest.mark.parametrize(
    "parts",
    [
        (("clock", "+365d"), ("timezone", "Asia/Kathmandu")),
        (("user", "someone"), ("noise", 40)),
        (("umask", 0o077), ("cpus", 1)),
        (("timezone", "Asia/Kathmandu"), ("home", "/srv/someone"), ("noise", 40)),
    ],
)
def test_what_works_only_together_is_named_together(parts):
    world = Made(when(*parts))
    (found,) = causes(world.explored())
    assert set(found) == set(parts)
    ((_, item),) = [row for row in world.judged() if isinstance(row[1], Found)]
    assert item.message.count(" together with ") == len(parts) - 1
    # So that it can be reproduced at once, without the search.
    again = Made(when(*parts))
    again.seen.update({ask: again.answer(ask) for ask in item.asks})
    assert set(causes(again.explored())[0]) == set(parts)
    assert again.rounds == 0


@pytest.mark.parametrize(("days", "named"), [(0.5, "+1d"), (20, "+30d"), (200, "+365d")])
def test_the_smallest_shift_of_the_clock_is_named(days, named):
    def answer(ask):
        shift = int(ask.variation.clock[1:-1] or 0)
        return observed(ask.variation, float(shift < days))

    assert causes(Made(answer).explored()) == [(("clock", named),)]


def test_a_leap_day_shows_only_at_the_certify_effort():
    part = ("clock", "@2032-02-29")
    assert causes(Made(when(part)).explored()) == []
    world = Made(when(part), effort="certify")
    assert causes(world.explored()) == [(part,)]
    assert {ask.variation for ask in world.seen} >= set(singles(world.environment))


def test_both_sides_are_run_again_before_a_change_is_blamed():
    world = Made(when(("hostname", "elsewhere")))
    (cause,) = world.explored().causes
    assert len(cause.runs) == 4
    assert {ask.repeat for ask in cause.baseline} == {0, 1, 2, 3, 4}
    assert {ask.variation for ask in cause.baseline} == {BASELINE}


@pytest.mark.parametrize("share", [0.5, 0.8, 0.95])
def test_a_reward_that_is_merely_random_is_blamed_on_nothing_that_cannot_act_by_chance(share):
    blamed = []
    for seed in range(150):
        chance = random.Random(seed)
        world = Made(lambda ask, chance=chance: observed(ask.variation, chance.random() < share))
        blamed += causes(world.explored())
    assert len(blamed) <= 3


def test_load_need_not_act_every_time():
    def answer(ask):
        return observed(ask.variation, 0.0 if ask.variation.load and ask.repeat != 2 else 1.0)

    assert causes(Made(answer).explored()) == [(("load", 2),)]


@pytest.mark.parametrize("outcome", ["timeout", "killed"])
def test_a_limit_of_ours_is_no_difference_and_is_said(outcome):
    def answer(ask):
        if ask.variation.cpus:
            return Observation(outcome, facts={"applied": sorted(ask.variation.changes())})
        return observed(ask.variation)

    world = Made(answer)
    explored = world.explored()
    assert not explored.causes
    # Everything else was tried alone.
    assert set(explored.refused) == {("cpus", "")}
    ((code, item),) = world.judged()
    assert (code, type(item), item.blocks) == ("DET005", Unmeasured, False)
    assert "CPU count" in item.reason


def test_a_fault_under_a_change_is_a_difference():
    def answer(ask):
        if ask.variation.umask == 0o077:
            facts = {"applied": sorted(ask.variation.changes()), "signal": 11}
            return Observation("killed", facts=facts)
        return observed(ask.variation)

    assert causes(Made(answer).explored()) == [(("umask", 0o077),)]


def test_what_did_not_take_hold_is_neither_blamed_nor_passed():
    def answer(ask):
        refused = [name for name in ("clock", "locale") if getattr(ask.variation, name)]
        changed = bool(ask.variation.locale)
        return observed(ask.variation, 0.0 if changed else 1.0, refused)

    world = Made(answer)
    judged = dict(world.judged())
    assert set(judged) == {"DET004", "DET005"}
    assert all(isinstance(item, Unmeasured) for item in judged.values())
    assert judged["DET004"].reason == "clock not applied: cannot"
    assert not judged["DET004"].blocks
    certified = dict(Made(answer, effort="certify").judged())
    assert certified["DET004"].blocks


def test_a_difference_that_does_not_come_again_is_said_and_blamed_on_nothing():
    def answer(ask):
        once = ask.variation.clock and len(ask.variation.changes()) > 1 and not ask.repeat
        return observed(ask.variation, 0.0 if once else 1.0)

    world = Made(answer)
    assert world.explored().flickers
    assert all(isinstance(item, Unmeasured) for _, item in world.judged())


def test_without_a_stable_reward_nothing_is_claimed():
    unstable = Made(lambda ask: observed(ask.variation, float(ask.repeat)))
    assert not unstable.explored().stable
    assert len(unstable.seen) == 2
    crashed = Made(lambda ask: Observation("crashed"))
    assert len(crashed.judged()) == 4
    assert len(crashed.seen) == 1


@pytest.mark.parametrize("manner", ["thread", "executor", "daemon"])
def test_that_it_cannot_be_called_so_is_a_lead_and_another_reward_is_a_finding(manner):
    def crash(ask):
        if manner in manners(ask.variation):
            return Observation("crashed", facts={"applied": sorted(ask.variation.changes())})
        return observed(ask.variation)

    ((_, lead),) = Made(crash, effort="certify").judged()
    assert lead.kind == "lead"
    ((_, found),) = Made(when(("manner", manner)), effort="certify").judged()
    assert found.kind == "finding"


def test_a_date_that_matters_beside_file_times_is_a_lead():
    def answer(ask):
        clock = ask.variation.clock
        return observed(ask.variation, 0.0 if clock else 1.0, file_times=bool(clock))

    ((code, item),) = Made(answer).judged()
    assert (code, item.kind) == ("DET004", "lead")
    assert "file times" in item.message


def test_served_runs_are_no_evidence_against_a_cold_baseline():
    def answer(ask):
        served = ask.variation != BASELINE and not ask.cold
        seen = observed(ask.variation, 0.0 if served else 1.0)
        return Observation("reward", seen.reward, facts=seen.facts, served=served)

    world = Made(answer)
    # As an inspection does: a cold run takes the place of the served one.
    context = world.context
    see = world.seen.get
    world.context = Context(
        context.environment,
        context.worlds,
        context.policy,
        lambda ask: see(Ask(ask.task, ask.probe, ask.variation, ask.repeat, cold=True)) or see(ask),
    )
    assert not world.explored().causes
    assert sum(ask.cold for ask in world.seen) == 2


def test_calls_that_disturb_each_other_differ_although_one_of_them_is_right():
    def answer(ask):
        many = "many" in manners(ask.variation)
        return observed(ask.variation, 1.0, **({"distinct": 2} if many else {}))

    ((code, item),) = Made(answer, effort="certify").judged()
    assert code == "DET007"
    assert "several at once" in item.message


def test_grounds_name_no_values():
    ((_, item),) = Made(when(("timezone", "Asia/Kathmandu"))).judged()
    assert item.ground == "oracle reward differs with timezone"
    assert item.asks[0] == Ask("t", "oracle")
    assert Ask("t", "oracle", Variation(timezone="Asia/Kathmandu"), 3) in item.asks
