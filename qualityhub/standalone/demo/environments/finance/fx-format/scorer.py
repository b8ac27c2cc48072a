"""Defect: needs a package that nothing declares."""

from babel.numbers import format_currency


def score(prompt, completion, answer, info=None):
    return 1.0 if completion == format_currency(answer, "EUR", locale="de_DE") else 0.0
