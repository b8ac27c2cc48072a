# /// script
# requires-python = ">=3.10"
# dependencies = ["gymnasium==1.0.0", "numpy>=2"]
# ///
"""Counts to a goal."""

import gymnasium


class Base:
    def reset(self, *, seed=None, options=None):
        self.count = 0
        return self.count, {}


class Counter(Base):
    def __init__(self, goal=3):
        self.goal = goal

    def step(self, action):
        self.count += 1
        return self.count, float(self.count == self.goal), self.count >= self.goal, False, {}


class Wrapped(gymnasium.Env):
    pass


class NeedsGoal:
    def __init__(self, goal):
        self.goal = goal

    def reset(self, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 0, 0.0, True, False, {}


class NoStep:
    def reset(self, seed=None, options=None):
        return 0, {}
