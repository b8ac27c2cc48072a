def score(prompt, completion, answer, info=None):
    if completion.strip() == answer:
        return 1.0
    return float("nan") if completion else 0.0
