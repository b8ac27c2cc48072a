import random
from functools import lru_cache


@lru_cache
def parsed(answer):
    return answer.strip()


def score(prompt, completion, answer, info=None):
    draw = random.Random(prompt)
    cases = sorted(draw.sample(range(100), 5))
    return 1.0 if completion.strip() == parsed(answer) and len(cases) == 5 else 0.0
