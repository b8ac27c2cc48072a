"""reset/step environments: drives one seeded trace and digests everything it returns."""

import copy
import hashlib
import json
import math
import os
import random
import re
import sys

import around
import common

ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def feed(state, value):
    """Feed a returned value into a digest, by type and content and never by identity."""
    if isinstance(value, (bool, int, float, str, bytes, type(None))):
        state.update(("%s:%r;" % (type(value).__name__, value)).encode("utf-8", "surrogatepass"))
    elif hasattr(value, "tobytes") and hasattr(value, "dtype"):
        shape = getattr(value, "shape", ())
        state.update(("array:%s:%r;" % (value.dtype, shape)).encode())
        if getattr(value.dtype, "hasobject", False):
            feed(state, value.tolist())
        else:
            state.update(value.tobytes())
    elif isinstance(value, dict):
        state.update(b"dict{")
        for key in sorted(value, key=repr):
            feed(state, key)
            feed(state, value[key])
        state.update(b"}")
    elif isinstance(value, (list, tuple)):
        state.update(b"seq[")
        for item in value:
            feed(state, item)
        state.update(b"]")
    elif isinstance(value, (set, frozenset)):
        state.update(b"set(")
        for text in sorted(ADDRESS.sub("", repr(item)) for item in value):
            state.update(text.encode("utf-8", "surrogatepass"))
        state.update(b")")
    else:
        text = "%s:%s;" % (type(value).__name__, ADDRESS.sub("", repr(value)))
        state.update(text.encode("utf-8", "surrogatepass"))


def short(*values):
    """Return a 12-character digest of values."""
    state = hashlib.sha256()
    for value in values:
        feed(state, value)
    return state.hexdigest()[:12]


def make(entry):
    """Build the environment from a registered id or a class in a file."""
    if "id" in entry:
        import gymnasium

        return gymnasium.make(entry["id"], **entry.get("kwargs", {}))
    module = common.load_file(os.path.join("/qh/env", entry["file"]))
    return getattr(module, entry["name"])(**entry.get("kwargs", {}))


def observed(returned):
    """Return the observation of ``reset``, for both its pair and its bare form."""
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], dict):
        return returned[0]
    return returned


def first_reset(env, seed):
    """Return (observation, whether ``reset`` takes a seed)."""
    try:
        return observed(env.reset(seed=seed)), True
    except TypeError as error:
        if "seed" not in str(error):
            raise
    return observed(env.reset()), False


def apart(sample, seed):
    """Return ``sample`` with a global generator of its own: which actions come is our choice.

    A space that cannot be seeded draws from ``random``; the environment's own draws from there
    keep the state they would have had.
    """
    own = [random.Random(seed).getstate()]

    def draw():
        theirs = random.getstate()
        random.setstate(own[0])
        try:
            return sample()
        finally:
            own[0] = random.getstate()
            random.setstate(theirs)

    return draw


class Beside:
    """Another instance that is reset and stepped in between, under a seed of its own."""

    def __init__(self, entry, seed):
        """Make it, where the variation says so."""
        self.env = None
        if "interleaved" in around.manners():
            self.env = make(entry)
            first_reset(self.env, seed)
            # A space may be the class's own: seeding it must not change the actions of the first.
            space = copy.deepcopy(self.env.action_space)
            self.draw = space.sample if hasattr(space, "seed") else apart(space.sample, seed)
            if hasattr(space, "seed"):
                space.seed(seed)

    def step(self):
        """Take one step, and begin anew where an episode ends."""
        if self.env is not None and any(bool(flag) for flag in self.env.step(self.draw())[2:-1]):
            self.env.reset()


def trace(entry, seed, steps):
    """Drive ``steps`` steps over as many episodes as they take."""
    try:
        env = make(entry)
    except BaseException as error:
        return dict(common.crashed(error), stage="load")
    return drive(env, entry, seed, steps)


def drive(env, entry, seed, steps):
    """Drive an environment and describe what it returned."""
    space = getattr(env, "action_space", None)
    if space is None or not hasattr(space, "sample"):
        return {
            "outcome": "no_reward",
            "stage": "actions",
            "detail": "the environment has no action_space with sample() to draw actions from",
        }
    observation, takes_seed = first_reset(env, seed)
    draw = space.sample
    if hasattr(space, "seed"):
        space.seed(seed)
    else:
        draw = apart(space.sample, seed)
    other = Beside(entry, seed + 1)
    digests = [short(observation)]
    rewards = []
    odd = []
    episodes = 1
    for index in range(steps):
        other.step()
        returned = env.step(draw())
        if not isinstance(returned, tuple) or len(returned) not in (4, 5):
            size = len(returned) if isinstance(returned, tuple) else 1
            return {
                "outcome": "no_reward",
                "detail": "step() returned %d values, expected 5" % size,
            }
        observation, reward = returned[:2]
        done = any(bool(flag) for flag in returned[2:-1])
        described = common.reward_result(reward)
        rewards.append(described["reward"])
        if described["reward_type"] not in ("number", "bool") or isinstance(
            described["reward"], str
        ):
            odd.append([index, described["reward"], described["reward_type"]])
        digests.append(short(observation, reward, returned[2:-1]))
        if done:
            episodes += 1
            digests.append(short(observed(env.reset())))
    if hasattr(env, "close"):
        env.close()
    numbers = [value for value in rewards if isinstance(value, float) and math.isfinite(value)]
    return {
        "outcome": "reward",
        "reward": math.fsum(numbers),
        "reward_type": "number",
        "facts": {
            "trace": digests,
            "rewards": rewards[:400],
            "odd_rewards": odd[:5],
            "lowest": min(numbers) if numbers else None,
            "highest": max(numbers) if numbers else None,
            "steps": steps,
            "episodes": episodes,
            "takes_seed": takes_seed,
        },
    }


def rehearse():
    """Do what cases do, for a process whose forks will be the cases; nothing of them is loaded."""
    gymnasium, numpy = sys.modules.get("gymnasium"), sys.modules.get("numpy")
    if gymnasium is None or numpy is None:
        return

    class Still(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 1, (1,), numpy.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):  # noqa: ARG002 - the form that callers expect
            super().reset(seed=seed)
            return numpy.array([self.np_random.random()], numpy.float32), {}

        def step(self, action):
            return numpy.array([action], numpy.float32), 0.0, False, False, {}

    json.dumps(drive(Still(), {}, 0, 8))


def main():
    """Answer every case of the payload."""
    payload, answer, channel = common.start()
    sys.path.insert(0, "/qh/env")
    for index, case in enumerate(payload["cases"]):
        common.run_case(
            index,
            lambda case=case: trace(payload["entry"], case["seed"], case["steps"]),
            payload["case_timeout_s"],
            answer,
            channel,
        )


if __name__ == "__main__":
    common.run(main)
