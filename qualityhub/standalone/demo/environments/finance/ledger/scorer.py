"""Exact to the cent; thousands separators and a currency sign are welcome."""

import re
from decimal import Decimal

AMOUNT = re.compile(r"-?\$?[0-9]{1,3}(?:,?[0-9]{3}){0,9}(?:\.[0-9]{1,2})?")


def cents(text):
    text = text.strip()
    if not AMOUNT.fullmatch(text):
        return None
    return int(Decimal(text.replace("$", "").replace(",", "")) * 100)


def score(prompt, completion, answer, info=None):
    value = cents(completion)
    return 1.0 if value is not None and value == cents(answer) else 0.0
