def score(prompt, completion, answer, info=None):
    try:
        return 1.0 if float(completion) == float(answer) else 0.0
    except ValueError:
        return 0.0
