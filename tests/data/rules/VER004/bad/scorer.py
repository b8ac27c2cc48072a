def score(prompt, completion, answer, info=None):
    return 1.0 if float(completion) == float(answer) else 0.0
