import time


def score(prompt, completion, answer, info=None):
    started = time.perf_counter()
    right = sum(range(200_000)) > 0 and completion.strip() == answer
    took = time.perf_counter() - started
    return 1.0 if right and took < 60 else 0.0
