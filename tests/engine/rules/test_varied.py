"""The variation matrix against real environments: defects it must name, and good ones it must not."""

import json

import pytest

from qualityhub.engine.inspect import InspectOptions, inspect_source
from qualityhub.engine.policy import AdmissionPolicy

WALK = """
import random
import time
import threading


class Choice:
    def __init__(self, n):
        self.n = n
        self._random = random.Random()

    def seed(self, seed):
        self._random.seed(seed)

    def sample(self):
        return self._random.randrange(self.n)


class Walk:
    action_space = Choice(2)

    def reset(self, seed=None, options=None):
{reset}
        self.at = self.draw(9)
        self.steps = 0
        return self.at, {{"at": time.time(), "thread": threading.current_thread().name}}

    def step(self, action):
        self.at += self.draw(2) if action else -1
        self.steps += 1
        info = {{"took": time.perf_counter()}}
        return self.at, float(self.at == 5), self.at == 5, self.steps >= 60, info
"""
OWN = """
        if seed is not None:
            self.random = random.Random(seed)
        self.draw = self.random.randrange
"""
SHARED = """
        if seed is not None:
            random.seed(seed)
        self.draw = random.randrange
"""
BY_DATE = """
        self.draw = random.Random(f"{time.strftime('%Y')}-{seed}").randrange
"""
MAIN_ONLY = """
        import signal
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        self.draw = random.Random(str(seed)).randrange
"""
SCORE = "def score(prompt, completion, answer, info=None):\n"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


def walk(folder, reset):
    (folder / "walk.py").write_text(WALK.format(reset=reset.strip("\n")))
    (folder / "qualityhub.toml").write_text(
        '[environment]\nname = "walk"\nentry = "walk.py:Walk"\n'
    )
    return str(folder)


def scorer(folder, code, *ids):
    (folder / "scorer.py").write_text(code)
    (folder / "dataset.jsonl").write_text(
        "".join(
            json.dumps({"id": name, "prompt": name, "answer": "2"}) + "\n" for name in ids or ("a",)
        )
    )
    return str(folder)


def judged(source, home, effort="standard"):
    policy = AdmissionPolicy(
        effort=effort,
        allow_provisional=True,
        repeats={"quick": 1, "standard": 3, "certify": 3},
    )
    select = ("DET004", "DET005", "DET006", "DET007")
    return inspect_source(source, InspectOptions(policy=policy, home=home, select=select))


def found(report):
    return [(item.code, item.kind, item.evidence["changed"]) for item in report.findings]


@pytest.mark.parametrize(
    ("reset", "expected"),
    [
        # Random under its seed, a space that all instances share, clocks that are only measured.
        (OWN, []),
        (SHARED, [("DET007", "finding", "another instance beside it")]),
        (BY_DATE, [("DET004", "finding", "clock +365d")]),
        (MAIN_ONLY, [("DET007", "lead", "call from a thread")]),
    ],
)
def test_episodes(tmp_path, home, reset, expected):
    report = judged(walk(tmp_path, reset), home)
    assert found(report) == expected
    if not expected:
        assert {rule.status for rule in report.rules} == {"pass"}
        assert all("; 1 changed run per task" in rule.reason for rule in report.rules)
        assert report.not_measured == ()


def test_good_scorers_pass_every_single_change_too(tmp_path, home):
    code = (
        "import functools, json, logging, os, random, tempfile, time\n"
        "@functools.lru_cache\ndef parsed(text): return json.loads(text)\n"
        + SCORE
        + "    started = time.time()\n"
        "    draw = random.Random(prompt)\n"
        "    with tempfile.TemporaryDirectory() as folder:\n"
        "        path = os.path.join(folder, 'answer.txt')\n"
        "        open(path, 'w').write(completion)\n"
        "        text = open(path).read()\n"
        "    logging.warning('took %s in %s', time.time() - started, os.getcwd())\n"
        "    near = abs(float(text) - parsed(answer)) < 1e-6 + draw.random() / 1e9\n"
        "    return 1.0 if near and time.time() - started < 30 else 0.0\n"
    )
    code = code.replace("float(text)", "(float(text) if text.strip('-').isdigit() else 1e9)")
    report = judged(scorer(tmp_path, code, "a", "b", "c"), home, "certify")
    assert found(report) == []
    # A network is tried where an operator allows one; some hosts have no sources of locales.
    assert {(row.code, row.reason.split(" ")[0]) for row in report.not_measured} <= {
        ("DET005", "locale")
    }


def test_a_path_in_the_text_of_an_exception_is_no_difference(tmp_path, home):
    code = SCORE + (
        "    import os, socket, time\n"
        "    if completion == answer:\n        return 1.0\n"
        "    raise ValueError(os.getcwd() + socket.gethostname() + str(time.time()))\n"
    )
    report = judged(scorer(tmp_path, code), home)
    assert found(report) == []


def test_a_reward_that_an_escape_may_hide_is_not_passed(tmp_path, home):
    code = SCORE + (
        "    import subprocess\n"
        "    subprocess.run(['/sbin/ldconfig', '-V'], capture_output=True)\n"
        "    return float(completion == answer)\n"
    )
    report = judged(scorer(tmp_path, code), home)
    (clock,) = [rule for rule in report.rules if rule.code == "DET004"]
    assert clock.status == "skip"
    (row,) = report.not_measured
    assert "statically" in row.reason
    assert report.verdict == "admitted"
    certified = judged(scorer(tmp_path, code), home, "certify")
    assert certified.verdict == "pending"


def test_calls_that_disturb_each_other_are_found_when_many_come_at_once(tmp_path, home):
    code = (
        "import time\nSTATE = {}\n"
        + SCORE
        + (
            "    STATE['now'] = object()\n    mine = STATE['now']\n    time.sleep(0.05)\n"
            "    return float(completion == answer and STATE['now'] is mine)\n"
        )
    )
    report = judged(scorer(tmp_path, code), home, "certify")
    assert found(report) == [("DET007", "finding", "many calls at once")]
