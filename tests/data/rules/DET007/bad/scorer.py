SEEN = set()


def score(prompt, completion, answer, info=None):
    if completion.strip() != answer:
        return 0.0
    again = prompt in SEEN
    SEEN.add(prompt)
    return 0.5 if again else 1.0
