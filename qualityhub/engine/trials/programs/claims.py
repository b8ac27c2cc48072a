"""What a case may say of itself. Standard library only, syntax of Python 3.8.

Foreign code in a case's process can write its answer as our code there does. What it writes counts
for the case that was asked for, as a lie about its own reward would: never as a word about us,
about another case, or about what was measured at all.
"""

import json
import math

SCORED = ("reward", "no_reward", "crashed")
MOST_FACTS = 64 * 1024
DEPTH = 3
DIGITS = 400
DETAIL = 2000
TEXTS = {"reward_type": 80, "error": 80, "message": 200, "missing_module": 80}
STAGES = ("load", "actions")
ESCAPES = 5


def taken(data, outcomes):
    """Return the answer in the form it should have, or None where it is no answer.

    Args:
        data: What the case wrote.
        outcomes: What it may say; all else is for the process that waits for it to say.
    """
    try:
        document = json.loads(data.decode("utf-8"), parse_int=_int)
        if not isinstance(document, dict) or document.get("outcome") not in outcomes:
            return None
        result = dict(_explained(document), outcome=document["outcome"])
        if isinstance(document.get("facts"), dict):
            result["facts"] = document["facts"]
            if not _shallow(document["facts"], DEPTH):
                return None
        # What cannot be written as one line of a sound size must fail here, and nowhere later.
        return result if len(json.dumps(result)) <= MOST_FACTS else None
    except (ValueError, TypeError, RecursionError, MemoryError):
        return None


def _explained(document):
    result = {}
    reward = document.get("reward")
    if isinstance(reward, float) and not math.isfinite(reward):
        reward = repr(reward)
    if isinstance(reward, (bool, int, float, str)):
        result["reward"] = reward[:200] if isinstance(reward, str) else reward
    for name, size in TEXTS.items():
        if isinstance(document.get(name), str):
            result[name] = document[name][:size]
    if isinstance(document.get("detail"), str):
        result["detail"] = document["detail"][-DETAIL:]
    if document.get("stage") in STAGES:
        result["stage"] = document["stage"]
    escaped = document.get("escaped")
    if isinstance(escaped, list):
        result["escaped"] = [why[:200] for why in escaped[:ESCAPES] if isinstance(why, str)]
    return result


def _shallow(value, depth):
    """Whether lists and objects nest at most ``depth`` deep."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return True
    return depth > 0 and all(_shallow(item, depth - 1) for item in value)


def _int(digits):
    """Read an integer; one of a million digits would take minutes."""
    return int(digits) if len(digits) < DIGITS else float(digits)
