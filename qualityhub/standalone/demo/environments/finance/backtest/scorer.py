"""Defect: the reward is the agreement on ten days drawn anew at every call."""

import random


def returns(weight, day):
    return weight * ((day * 37) % 11 - 5) + (1 - weight) * ((day * 17) % 5 - 2)


def score(prompt, completion, answer, info=None):
    try:
        weight = float(completion)
    except ValueError:
        return 0.0
    if not 0.0 <= weight <= 1.0:
        return 0.0
    days = random.sample(range(250), 10)
    noise = sum(returns(weight, day) * random.gauss(1.0, 0.2) for day in days)
    target = sum(returns(float(answer), day) for day in days)
    return max(0.0, 1.0 - abs(noise - target) / 10)
