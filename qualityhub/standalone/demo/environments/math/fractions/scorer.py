"""One when the answer equals the expected fraction exactly, else zero."""

import re
from fractions import Fraction

NUMBER = re.compile(r"[-+]?[0-9]{1,40}(?:/[0-9]{1,40}|\.[0-9]{1,40})?")


def parse(text):
    text = text.strip()
    if not NUMBER.fullmatch(text):
        return None
    try:
        return Fraction(text)
    except ZeroDivisionError:
        return None


def score(prompt, completion, answer, info=None):
    value = parse(completion)
    return 1.0 if value is not None and value == parse(answer) else 0.0
