import random


class Choice:
    def __init__(self, n):
        self.n = n
        self._random = random.Random()

    def seed(self, seed):
        self._random.seed(seed)

    def sample(self):
        return self._random.randrange(self.n)


class Walk:
    def __init__(self):
        self.action_space = Choice(2)
        self._random = random.Random()

    def reset(self, seed=None, options=None):
        if seed is not None:
            self._random.seed(seed)
        self.at = self._random.randrange(9)
        self.steps = 0
        return self.at, {}

    def step(self, action):
        self.at += 1 if action else -1
        self.steps += 1
        return self.at, float(self.at == 5), self.at == 5, self.steps >= 60, {}
