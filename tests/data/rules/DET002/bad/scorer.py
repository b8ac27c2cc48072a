def score(prompt, completion, answer, info=None):
    names = list({"alpha", "beta", "gamma", "delta", "epsilon", "zeta", answer})
    return 1.0 if completion.strip() == answer else names.index(answer) / 10
