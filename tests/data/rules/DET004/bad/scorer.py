from datetime import date


def score(prompt, completion, answer, info=None):
    return 1.0 if completion.strip() == answer else date.today().year % 7 / 100
