"""Stack unit voxels on a 4x4 floor; the reward is the support under each placed voxel."""

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


class VoxelStack:
    """Sound: everything random comes from the generator that reset() seeds."""

    size = 4

    def __init__(self):
        self.action_space = Choice(self.size * self.size)
        self._random = random.Random()
        self.heights = {}

    def reset(self, seed=None, options=None):
        if seed is not None:
            self._random.seed(seed)
        self.heights = {
            (x, y): self._random.randrange(2)
            for x in range(self.size)
            for y in range(self.size)
        }
        self.placed = 0
        return self._observe(), {}

    def step(self, action):
        cell = divmod(action, self.size)
        before = self.heights[cell]
        around = [
            self.heights[x, y]
            for x, y in self.heights
            if abs(x - cell[0]) + abs(y - cell[1]) == 1
        ]
        self.heights[cell] = before + 1
        self.placed += 1
        support = sum(1 for height in around if height >= before) / len(around)
        toppled = before + 1 - min(around) > 3
        reward = 0.0 if toppled else support
        return self._observe(), reward, toppled, self.placed >= 40, {}

    def _observe(self):
        return [self.heights[x, y] for x in range(self.size) for y in range(self.size)]
