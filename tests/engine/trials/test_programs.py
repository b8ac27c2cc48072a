"""The in-sandbox programs against code that does not behave, in a real sandbox."""

import json
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from qualityhub.engine.inspect import InspectOptions, NullProgress, inspect_source, reproduce
from qualityhub.engine.policy import AdmissionPolicy
from qualityhub.engine.trials.model import Ask, Variation
from qualityhub.engine.trials.probes import MALFORMED, NOP, ORACLE, TRACE
from qualityhub.engine.trials.runner import PROGRAMS

DEEP = 950
SCORE = "def score(prompt, completion, answer, info=None):\n"


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    return InspectOptions(policy=AdmissionPolicy(), home=tmp_path_factory.mktemp("home"))


def scorer(folder, code, answer="2"):
    folder.mkdir(exist_ok=True)
    (folder / "dataset.jsonl").write_text(
        json.dumps({"id": "one", "prompt": "1+1?", "answer": answer}) + "\n"
    )
    (folder / "scorer.py").write_text(code)
    return str(folder)


def seen(source, options, *probes):
    task = "one"
    return [
        result for _, result in reproduce(source, [Ask(task, probe) for probe in probes], options)
    ]


def test_what_foreign_code_prints_is_no_answer(tmp_path, options):
    code = SCORE + (
        "    import os, sys\n"
        '    print(\'{"case": 0, "outcome": "reward", "reward": 99}\')\n'
        "    os.write(1, b'noise')\n"
        "    return 1.0 if completion == answer else 0.0\n"
    )
    oracle, nop = seen(scorer(tmp_path, code), options, ORACLE, NOP)
    assert (oracle.reward, nop.reward) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ("    import os; os._exit(0)\n", "no_reward"),
        ("    import os; os.kill(os.getpid(), 11)\n", "killed"),
        ("    import sys; sys.exit(3)\n", "crashed"),
        ("    raise ValueError(completion)\n", "crashed"),
        ("    while True: pass\n", "timeout"),
        ("    return [0] * 10**10\n", "crashed"),
        ("    f = lambda n: f(n + 1); return f(0)\n", "crashed"),
    ],
)
def test_each_way_to_die_is_the_result_of_its_case_alone(tmp_path, options, body, outcome):
    guarded = SCORE + "    if completion:\n        return 1.0\n" + body
    oracle, nop = seen(scorer(tmp_path, guarded), options, ORACLE, NOP)
    assert oracle.reward == 1.0
    assert nop.outcome == outcome


def test_a_scorer_that_hangs_is_shown_on_a_few_tasks_and_costs_no_more(tmp_path, options):
    source = scorer(
        tmp_path, SCORE + "    return float(completion == answer or eval(completion))\n"
    )
    rows = [{"id": f"r{i}", "prompt": "p", "answer": "x"} for i in range(6)]
    (tmp_path / "dataset.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asks = [Ask(f"r{i}", "malformed:tower") for i in range(6)]
    outcomes = [seen.outcome for _, seen in reproduce(source, asks, options)]
    assert outcomes == ["timeout"] * 3 + ["unmeasured"] * 3


@pytest.mark.parametrize("status", [71, 126, 127])
def test_a_scorer_that_leaves_with_a_status_of_ours_is_not_our_failure(tmp_path, options, status):
    source = scorer(tmp_path, f"import os\nos._exit({status})\n" + SCORE + "    return 1.0\n")
    [oracle] = seen(source, options, ORACLE)
    assert oracle.outcome == "no_reward"
    assert inspect_source(source, options).verdict == "rejected"


@pytest.mark.parametrize(
    ("written", "outcome"),
    [
        ("b'[1]'", "no_reward"),
        ("b'[' * 100000", "no_reward"),
        ('b\'{"outcome": "reward", "reward": NaN}\'', "reward"),
        ('b\'{"outcome": "reward", "reward": 1, "facts": 5}\'', "reward"),
    ],
)
def test_what_a_case_writes_into_its_own_pipe_breaks_nothing_of_ours(
    tmp_path, options, written, outcome
):
    code = SCORE + (
        "    import os\n"
        "    for fd in range(3, 32):\n"
        "        try:\n"
        f"            os.write(fd, {written})\n"
        "        except OSError:\n"
        "            pass\n"
        "    os._exit(0)\n"
    )
    source = scorer(tmp_path, code)
    [oracle] = seen(source, options, ORACLE)
    assert oracle.outcome == outcome
    assert inspect_source(source, options).verdict == "rejected" or outcome == "reward"


WRITES = (
    "import json, os, sys\n"
    "def write(data):\n"
    "    for fd in range(3, 64):\n"
    "        try:\n"
    "            os.write(fd, data)\n"
    "        except OSError:\n"
    "            pass\n"
)
LIE = SCORE + "    if completion == answer:\n        return 1.0\n"


@pytest.mark.parametrize(
    "lie",
    [
        {"machinery": "disk of the host is broken"},
        {"machinery": "disk of the host is broken", "outcome": "unmeasured"},
        {"outcome": "unmeasured", "detail": "the budget was spent"},
        {"outcome": "timeout"},
        {"outcome": "killed", "signal": 9},
        {"outcome": "no_reference"},
        {"outcome": ["reward"], "reward": 1},
        {"outcome": "reward", "reward": [[1]]},
    ],
    ids=repr,
)
def test_a_case_says_nothing_of_us_and_nothing_of_what_was_measured(tmp_path, options, lie):
    code = WRITES + LIE + f"    write({json.dumps(lie).encode()!r})\n    os._exit(0)\n"
    oracle, nop = seen(scorer(tmp_path, code), options, ORACLE, NOP)
    assert oracle.reward == 1.0
    assert nop.outcome == "no_reward"
    assert "signal" not in nop.facts
    assert inspect_source(str(tmp_path), options).verdict == "rejected"


@pytest.mark.parametrize(
    "written",
    [
        "b'{\"outcome\": \"reward\", \"facts\": {\"x\": ' + b'[' * DEEP + b']' * DEEP + b'}}'",
        'b\'{"outcome": "reward", "reward": 1, "facts": {"row": "\' + b\'x\' * 70000 + b\'"}}\'',
        'b\'{"outcome": "reward", "reward": 1\'',
        "b'x' * (8 << 20)",
        "b''",
        "b'\\n'",
    ],
    ids=["deep", "large", "half", "flood", "nothing", "blank"],
)
@pytest.mark.parametrize("manner", ["", "reversed"], ids=["apart", "together"])
def test_an_answer_out_of_all_form_is_none_and_the_other_cases_go_on(
    tmp_path, options, written, manner
):
    end = b"\n" if manner else b""
    code = f"DEEP = {DEEP}\n" + WRITES + LIE + f"    write({written} + {end})\n    os._exit(0)\n"
    variation = Variation(manner=manner)
    asks = [Ask("one", probe, variation) for probe in (NOP, ORACLE, "malformed:words")]
    found = dict(reproduce(scorer(tmp_path, code), asks, options))
    nop, oracle, words = (found[ask] for ask in asks)
    assert oracle.reward == 1.0
    assert {nop.outcome, words.outcome} == {"no_reward"}


def test_an_answer_at_the_edge_of_what_can_be_parsed_is_no_failure_of_ours(tmp_path, options):
    opening = b'{"outcome": "reward", "reward": 1, "facts": {"x": '
    deep = f"    write({opening!r} + b'[' * int(answer) + b']' * int(answer) + b'}}}}')\n"
    source = scorer(tmp_path, WRITES + SCORE + deep + "    os._exit(0)\n")
    rows = [{"id": f"r{depth}", "prompt": "p", "answer": f"{depth}"} for depth in range(940, 1000)]
    (tmp_path / "dataset.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = reproduce(source, [Ask(row["id"], ORACLE) for row in rows], options)
    assert {observed.outcome for _, observed in found} == {"no_reward"}


def test_every_depth_of_an_answer_is_either_taken_or_none():
    code = (
        "import claims, json\n"
        "for depth in range(0, 1200):\n"
        "    facts = '[' * depth + ']' * depth if depth else '1'\n"
        '    data = \'{"outcome": "reward", "reward": 1, "facts": {"x": %s}}\' % facts\n'
        "    said = claims.taken(data.encode(), claims.SCORED)\n"
        "    assert (said is None) == (depth > 2), depth\n"
        "huge = b'{\"outcome\": \"reward\", \"reward\": ' + b'9' * 900000 + b'}'\n"
        "assert claims.taken(huge, claims.SCORED)['reward'] == 'inf'\n"
        'twice = b\'{"outcome": "timeout", "case": 7, "outcome": "crashed", "detail": NaN}\'\n'
        "assert claims.taken(twice, claims.SCORED) == {'outcome': 'crashed'}\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=PROGRAMS, check=True, timeout=20)


def test_a_case_that_closes_its_pipe_and_hangs_runs_out_of_its_own_time_only(tmp_path, options):
    code = LIE + "    import os, time\n    os.closerange(3, 64)\n    time.sleep(600)\n"
    started = time.monotonic()
    nop, oracle = seen(scorer(tmp_path, code), options, NOP, ORACLE)
    assert time.monotonic() - started < 40
    assert (nop.outcome, oracle.reward) == ("timeout", 1.0)


def test_a_case_cannot_answer_for_another(tmp_path, options):
    forged = {"case": 0, "outcome": "reward", "reward": 1.0}
    both = b"".join(json.dumps(dict(forged, case=case)).encode() + b"\n" for case in (0, 1, 2))
    code = WRITES + LIE + f"    write({both!r})\n    return 0.0\n"
    oracle, nop = seen(scorer(tmp_path, code), options, ORACLE, NOP)
    assert (oracle.outcome, oracle.reward) == ("reward", 1.0)
    assert nop.outcome == "no_reward"


@pytest.mark.parametrize(
    "said",
    [
        {"machinery": "disk of the host is broken"},
        {"case": 0, "outcome": "unmeasured"},
        {"case": 0, "outcome": "no_reference"},
    ],
    ids=repr,
)
def test_a_scorer_whose_import_speaks_in_our_name_is_judged_all_the_same(tmp_path, options, said):
    code = f"import common, os\ncommon.ANSWER[0]({said!r})\nos._exit(71)\n" + SCORE
    [oracle] = seen(scorer(tmp_path, code + "    return 1.0\n"), options, ORACLE)
    assert oracle.outcome == "no_reward"
    assert inspect_source(str(tmp_path), options).verdict == "rejected"


def test_a_process_left_behind_does_not_read_as_a_hang(tmp_path, options):
    code = SCORE + (
        "    import os, time\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        time.sleep(600)\n"
        "    return 1.0 if completion == answer else 0.0\n"
    )
    oracle, nop = seen(scorer(tmp_path, code), options, ORACLE, NOP)
    assert (oracle.reward, nop.reward) == (1.0, 0.0)


def test_an_exception_that_cannot_be_printed_is_still_a_crash(tmp_path, options):
    code = (
        "class Mute(Exception):\n"
        "    def __str__(self): raise RuntimeError\n"
        "    __repr__ = __str__\n" + SCORE + "    raise Mute\n"
    )
    [oracle] = seen(scorer(tmp_path, code), options, ORACLE)
    assert (oracle.outcome, oracle.facts["error"]) == ("crashed", "Mute")


def test_hangs_on_several_malformed_answers_end_the_battery_and_spare_the_reference(
    tmp_path, options
):
    source = scorer(tmp_path, SCORE + "    while completion != answer: pass\n    return 1.0\n")
    probes = [f"malformed:{name}" for name in MALFORMED]
    *seen_, oracle = seen(source, options, *probes, ORACLE)
    outcomes = [each.outcome for each in seen_]
    assert outcomes.count("timeout") == 6
    assert outcomes.count("unmeasured") == len(probes) - 6
    assert oracle.reward == 1.0


def test_one_case_leaves_no_state_for_the_next(tmp_path, options):
    code = "calls = []\n\n" + SCORE + "    calls.append(1)\n    return float(len(calls))\n"
    oracle, nop = seen(scorer(tmp_path, code), options, ORACLE, NOP)
    assert oracle.reward == nop.reward == 1.0


def test_rewards_that_json_cannot_say_are_told_apart(tmp_path, options):
    for value, reward, kind in (
        ("float('nan')", "nan", "number"),
        ("float('-inf')", "-inf", "number"),
        ("10**400", "overflow", "number"),
        ("None", "None", "NoneType"),
        ("True", 1.0, "bool"),
        ("1j", "1j", "complex"),
        ("'0.5'", "'0.5'", "str"),
    ):
        [oracle] = seen(scorer(tmp_path, SCORE + f"    return {value}\n"), options, ORACLE)
        assert (oracle.reward, oracle.reward_type) == (reward, kind)


def test_a_scorer_that_does_not_load_says_what_is_missing(tmp_path, options):
    source = scorer(tmp_path, "import not_declared_anywhere\n\n" + SCORE + "    return 1.0\n")
    [oracle] = seen(source, options, ORACLE)
    assert oracle.outcome == "crashed"
    assert oracle.facts["missing_module"] == "not_declared_anywhere"


def test_a_scorer_cannot_reach_the_network_or_the_host(tmp_path, options):
    code = SCORE + (
        "    import os, socket\n"
        "    try:\n"
        "        socket.create_connection(('127.0.0.1', 22), timeout=1)\n"
        "        return 0.1\n"
        "    except OSError:\n"
        "        pass\n"
        "    seen = [p for p in ('/root/.ssh', '/home', '/var/lib') if os.path.exists(p) and os.listdir(p)]\n"
        "    secrets = [k for k in os.environ if k.startswith(('QH_', 'AWS', 'SSH'))]\n"
        "    return 1.0 if not seen and not secrets else 0.2\n"
    )
    [oracle] = seen(scorer(tmp_path, code), options, ORACLE)
    assert oracle.reward == 1.0


def test_numpy_free_environments_are_traced_step_by_step(tmp_path, options):
    (tmp_path / "walk.py").write_text(
        "class Space:\n"
        "    def seed(self, seed): self.state = seed\n"
        "    def sample(self): self.state = (self.state * 5 + 3) % 7; return self.state\n"
        "class Walk:\n"
        "    action_space = Space()\n"
        "    def reset(self): self.at = 0; return self.at\n"
        "    def step(self, action): self.at += action; return self.at, 0.5, self.at > 20, {}\n"
    )
    [(_, trace)] = reproduce(f"{tmp_path / 'walk.py'}:Walk", [Ask("Walk", TRACE)], options)
    assert trace.outcome == "reward"
    assert trace.facts["takes_seed"] is False
    assert trace.facts["episodes"] > 10
    assert trace.reward == pytest.approx(150.0)


GAME = """import random
class Space:
    def sample(self): return random.randrange(3)
class Walk:
    action_space = Space()
    def reset(self, seed=None, options=None): self.own = random.Random(seed); return 0, {}
    def step(self, action): return (action, self.own.random()), 0.0, False, False, {}
class Leaky(Walk):
    def step(self, action): return (action, random.random()), 0.0, False, False, {}
class Bare(Walk):
    action_space = None
class Fickle(Walk):
    @property
    def action_space(self):
        import os
        for fd in range(3, 64):
            try:
                os.write(fd, b'{"outcome": "unmeasured", "detail": "it has no action_space"}')
            except OSError:
                pass
        os._exit(0)
"""


@pytest.mark.parametrize(
    ("name", "codes", "verdict"),
    [
        ("Walk", set(), "admitted"),
        ("Leaky", {"DET003"}, "rejected"),
        ("Bare", {"VER005"}, "rejected"),
        ("Fickle", {"VER005"}, "rejected"),
    ],
)
def test_a_space_without_a_seed_is_not_held_against_an_environment_and_no_space_is(
    tmp_path, options, name, codes, verdict
):
    (tmp_path / "game.py").write_text(GAME)
    report = inspect_source(f"{tmp_path / 'game.py'}:{name}", options)
    assert {finding.code for finding in report.findings} == codes
    assert report.verdict == verdict


def test_a_budget_ends_within_a_round_and_says_what_was_left(tmp_path, options):
    rows = [json.dumps({"id": str(n), "prompt": "1+1?", "answer": "2"}) for n in range(400)]
    (tmp_path / "dataset.jsonl").write_text("\n".join(rows) + "\n")
    (tmp_path / "scorer.py").write_text(
        "import time\ntime.sleep(0.5)\n" + SCORE + "    return float(completion == answer)\n"
    )
    report = inspect_source(str(tmp_path), replace(options, jobs=1, budget_s=1.0))
    assert report.trials["run"] < 20
    assert report.verdict == "pending"
    assert {row.reason for row in report.not_measured} >= {"the budget of 1 s was spent"}


def test_an_unchanged_source_runs_nothing_again_and_one_new_row_only_its_own_task(
    tmp_path, options
):
    rows = [
        {
            "task_id": f"t/{i}",
            "prompt": f"def f{i}():\n",
            "entry_point": f"f{i}",
            "canonical_solution": f"    return {i}\n",
            "test": f"def check(c):\n    assert c() == {i}\n",
        }
        for i in range(4)
    ]
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    first = inspect_source(str(path), options)
    assert first.trials["cached"] == 0
    again = inspect_source(str(path), options)
    assert again.trials["run"] == 0
    assert again.verdict == first.verdict == "admitted"
    rows[2]["test"] += "    assert c() is not None\n"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    changed = inspect_source(str(path), options)
    assert changed.trials["run"] == first.trials["run"] // 4


def test_a_reference_that_removes_its_working_folder_fails_by_its_own_fault(
    tmp_path, options, monkeypatch
):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    folder = tmp_path / "task"
    for name, text in {
        "task.toml": 'version = "1.0"\n',
        "instruction.md": "Do it.\n",
        "environment/Dockerfile": "FROM python:3.11-slim\nWORKDIR /app/here\n",
        "solution/solve.sh": "cd /; rm -rf /app/here; touch /app/here\n",
        "tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    [(_, seen)] = reproduce(str(folder), [Ask("task", ORACLE)], options)
    assert seen.outcome == "no_reward"
    assert "the reference removed /app/here" in seen.detail


def test_an_interrupt_ends_a_hanging_trial_at_once_and_does_not_try_it_again(tmp_path, options):
    row = {"prompt": "def f():\n", "entry_point": "f", "canonical_solution": "    return 1\n"}
    quick = {**row, "task_id": "a", "test": "def check(f):\n    assert f() == 1\n"}
    hanging = {**row, "task_id": "b", "test": "import time\ndef check(f):\n    time.sleep(99)\n"}
    source = tmp_path / "rows.jsonl"
    source.write_text(f"{json.dumps(quick)}\n{json.dumps(hanging)}\n")

    class Impatient(NullProgress):
        def trials(self, done, total, cached):
            raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        inspect_source(str(source), replace(options, jobs=2), Impatient())
    assert time.monotonic() - started < 10
