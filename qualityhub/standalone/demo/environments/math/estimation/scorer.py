"""Partial credit by distance. Defect: anything that is no number raises."""


def score(prompt, completion, answer, info=None):
    error = abs(float(completion) - float(answer))
    return max(0.0, 1.0 - error)
