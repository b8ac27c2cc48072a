"""Walk along the edges of a labelled mesh; the reward is one on an unseen vertex."""

import random


class Choice:
    """A space of n actions."""

    def __init__(self, n):
        self.n = n
        self._random = random.Random()

    def seed(self, seed):
        self._random.seed(seed)

    def sample(self):
        return self._random.randrange(self.n)


EDGES = [
    ("apex", "north"), ("apex", "east"), ("apex", "south"), ("apex", "west"),
    ("north", "east"), ("east", "south"), ("south", "west"), ("west", "north"),
    ("base", "north"), ("base", "east"), ("base", "south"), ("base", "west"),
]


class MeshWalk:
    """Defect: neighbours are kept in a set, so an action's meaning depends on the hash seed."""

    def __init__(self):
        self.action_space = Choice(4)
        self.around = {}
        for a, b in EDGES:
            self.around.setdefault(a, set()).add(b)
            self.around.setdefault(b, set()).add(a)

    def reset(self, seed=None, options=None):
        self.at = "apex"
        self.seen = {"apex"}
        self.steps = 0
        return self.at, {}

    def step(self, action):
        neighbours = list(self.around[self.at])
        self.at = neighbours[action % len(neighbours)]
        reward = 0.0 if self.at in self.seen else 1.0
        self.seen.add(self.at)
        self.steps += 1
        return self.at, reward, len(self.seen) == 6, self.steps >= 25, {}
