"""Code against tests: executes prompt, completion and test, as HumanEval and MBPP define it."""

import sys

import common


def judge(case):
    """Return reward 1.0 when the tests pass, 0.0 when the program raises.

    With an entry point the tests are ``check(entry_point)``, without one they are statements.
    """
    source = "%s%s\n%s\n" % (case["prompt"], case["completion"], case["test"])
    if case["entry_point"]:
        source += "check(%s)\n" % case["entry_point"]
    try:
        exec(compile(source, "<submission>", "exec"), {"__name__": "__main__"})
    except BaseException as error:
        result = common.crashed(error)
        result["outcome"] = "reward"
        result["reward"] = 0.0
        result["reward_type"] = "number"
        return result
    return {"outcome": "reward", "reward": 1.0, "reward_type": "number"}


def rehearse():
    """Do what cases do, for a process whose forks will be the cases."""
    case = {"prompt": "def f(x):\n", "test": "def check(f):\n    assert f(1) == 1\n"}
    for completion in ("    return x\n", "    pass\n"):
        judge(dict(case, completion=completion, entry_point="f"))


def main():
    """Answer every case of the payload."""
    payload, answer, channel = common.start()
    sys.setrecursionlimit(10000)
    for index, case in enumerate(payload["cases"]):
        common.run_case(
            index, lambda case=case: judge(case), payload["case_timeout_s"], answer, channel
        )


if __name__ == "__main__":
    common.run(main)
