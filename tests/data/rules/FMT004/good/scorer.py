def score(prompt, completion, answer, info=None):
    return 1.0 if completion.strip() == answer else 0.0
