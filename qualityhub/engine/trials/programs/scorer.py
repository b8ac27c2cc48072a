"""Data set plus reward function: loads the scorer once, scores each case in a child."""

import hashlib
import json
import os

import around
import claims
import common

# A scorer that hangs on an answer hangs on it for every row, and one that hangs on several hangs
# on most: minutes for nothing new.
ENOUGH_HANGS = 3
ENOUGH_MALFORMED_HANGS = 6
MALFORMED = "malformed:"


def digest(value):
    """Return a short digest of a row, stable for equal JSON."""
    text = json.dumps(value, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def load_score(entry):
    """Return ``score(row, completion) -> value`` for a ``score`` function in a file."""
    module = common.load_file(os.path.join("/qh/env", entry["file"]))
    score = getattr(module, entry["name"])

    def call(row, completion):
        if "info" in row and row["info"] is not None:
            return score(row["prompt"], completion, row["answer"], row["info"])
        return score(row["prompt"], completion, row["answer"])

    return call


def judge_file(call, row, completion):
    """Score one completion of one row of the file."""
    return common.reward_result(call(row, completion))


def judge_generated(dataset, case):
    """Score one completion of one generated row; the row's digest shows what was generated."""
    row = dataset[case["index"]]
    facts = {"row": digest([row.get("question"), row.get("answer")])}
    completion = case["completion"]
    if case["oracle"]:
        completion = row.get("answer")
        if completion is None:
            return {
                "outcome": "no_reference",
                "detail": "the generator gives no reference answer for this row",
                "facts": facts,
            }
    try:
        result = common.reward_result(dataset.score_answer(completion, row))
    except Exception as error:
        result = common.crashed(error)
    facts["prompt"] = str(row.get("question"))[:500]
    facts["answer"] = str(row.get("answer"))[:500]
    result["facts"] = facts
    return result


def outcomes(case):
    """Return what a case may say of itself.

    That there is no reference is a generator's word about its own row alone; of a row of ours we
    know it.
    """
    return (*claims.SCORED, "no_reference") if case.get("oracle") else claims.SCORED


def enough_hangs(hung, probe):
    """Return why a case is left out after the hangs so far, or an empty string."""
    if hung.get(probe, 0) >= ENOUGH_HANGS:
        return "%d tasks before it hang on the same answer" % ENOUGH_HANGS
    malformed = sum(count for name, count in hung.items() if name.startswith(MALFORMED))
    if probe.startswith(MALFORMED) and malformed >= ENOUGH_MALFORMED_HANGS:
        return "%d malformed answers before it hang" % ENOUGH_MALFORMED_HANGS
    return ""


def with_completion(cases, answer):
    """Answer the cases whose row has nothing to submit; return the places of the others."""
    places = []
    for index, case in enumerate(cases):
        if "row" in case and case["completion"] is None:
            detail = "the row has no right completion"
            answer({"case": index, "outcome": "no_reference", "detail": detail})
        else:
            places.append(index)
    return places


def main():
    """Answer every case of the payload."""
    payload, answer, channel = common.start()
    entry = payload["entry"]
    cases = payload["cases"]
    timeout_s = payload["case_timeout_s"]
    # The import is shared by all cases, and with it this process.
    common.foreign(answer)
    try:
        if "file" in entry:
            call = load_score(entry)
            rows = payload["rows"]

            def work(case):
                return judge_file(call, rows[case["row"]], case["completion"])

        else:
            import reasoning_gym

            dataset = reasoning_gym.create_dataset(
                entry["name"], size=entry["size"], seed=entry["seed"], **entry.get("config", {})
            )

            def work(case):
                return judge_generated(dataset, case)

    except BaseException as error:
        # The scorer does not even load: every case has that result.
        broken = common.crashed(error)
        broken["stage"] = "load"
        for index in range(len(cases)):
            answer(dict(broken, case=index))
        return
    asked = with_completion(cases, answer)
    if "reversed" in around.manners():
        common.run_together(
            asked,
            lambda index: work(cases[index]),
            timeout_s,
            answer,
            channel,
            lambda index: outcomes(cases[index]),
        )
        return
    hung = {}
    for index in asked:
        case = cases[index]
        probe = case["probe"]
        reason = enough_hangs(hung, probe)
        if reason:
            answer({"case": index, "outcome": "unmeasured", "detail": reason})
            continue
        outcome = common.run_case(
            index, lambda case=case: work(case), timeout_s, answer, channel, outcomes(case)
        )
        if outcome == "timeout":
            hung[probe] = hung.get(probe, 0) + 1


if __name__ == "__main__":
    common.run(main)
