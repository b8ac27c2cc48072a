def score(prompt, completion, answer, info=None):
    names = sorted({"alpha", "beta", "gamma", "delta", answer})
    return 1.0 if completion.strip() == answer else names.index(answer) / 10
