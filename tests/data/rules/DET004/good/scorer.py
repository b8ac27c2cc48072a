import time
from datetime import date

LOG = []


def score(prompt, completion, answer, info=None):
    started = time.time()
    right = completion.strip() == answer
    LOG.append((date.today().isoformat(), time.time() - started))
    return 1.0 if right else 0.0
