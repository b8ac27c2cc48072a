"""Every change around a trial takes hold in a real world, or is said not to have."""

import json

import pytest

from qualityhub.engine.environments.reader import read_environment
from qualityhub.engine.inspect import InspectOptions, reproduce
from qualityhub.engine.policy import AdmissionPolicy
from qualityhub.engine.trials.model import Ask, Variation
from qualityhub.engine.trials.variations import screens, singles

SCORE = "def score(prompt, completion, answer, info=None):\n"
YEAR_S = 365 * 86_400


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    return InspectOptions(policy=AdmissionPolicy(), home=tmp_path_factory.mktemp("home"))


@pytest.fixture
def without_engine(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")


def scorer(folder, code, rows=("one",)):
    folder.mkdir(exist_ok=True)
    (folder / "scorer.py").write_text(code)
    (folder / "dataset.jsonl").write_text(
        "".join(json.dumps({"id": row, "prompt": row, "answer": "2"}) + "\n" for row in rows)
    )
    return str(folder)


def task(folder, test, solve="true\n"):
    for name, content in {
        "task.toml": '[task]\nname = "samples/one"\n[verifier]\ntimeout_sec = 60.0\n'
        '[environment]\nworkdir = "/app"\nallow_internet = false\n',
        "instruction.md": "Do it.\n",
        "environment/Dockerfile": "FROM python:3.11-slim\nWORKDIR /app\n",
        "solution/solve.sh": solve,
        "tests/test.sh": test,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return str(folder)


def run(source, options, *variations, probe="oracle"):
    first = read_environment(source).tasks[0].id
    asks = [Ask(first, probe, variation) for variation in variations]
    return [seen for _, seen in reproduce(source, asks, options)]


def test_every_single_change_of_a_scorer_takes_hold_and_harms_nothing(tmp_path, options):
    source = scorer(tmp_path, SCORE + "    return float(completion == answer)\n")
    changes = (*screens(read_environment(source)), *singles(read_environment(source)))
    for variation, seen in zip(changes, run(source, options, *changes), strict=True):
        assert seen.outcome == "reward", (variation, seen.detail)
        assert seen.reward == 1.0
        missing = set(variation.changes()) - set(seen.facts["applied"])
        # Some hosts have no sources of locales, or one CPU.
        assert missing <= {"locale", "cpus"}, seen.facts
        assert missing == set(seen.facts.get("not_applied", ()))


@pytest.mark.parametrize(
    ("variation", "shown", "value"),
    [
        (Variation(timezone="Asia/Kathmandu"), "-__import__('time').timezone", 20_700),
        (Variation(folder="/srv/elsewhere"), "len(__import__('os').getcwd())", 14),
        (Variation(home="/srv/someone"), "len(__import__('os').environ['HOME'])", 12),
        (Variation(user="someone"), "len(__import__('getpass').getuser())", 7),
        (Variation(hostname="far"), "len(__import__('socket').gethostname())", 3),
        (
            Variation(hostname="elsewhere"),
            "__import__('socket').gethostbyname(__import__('socket').gethostname()) == '127.0.0.1'",
            1,
        ),
        (Variation(umask=0o077), "__import__('os').umask(0)", 0o077),
        (Variation(noise=40), "'UNRELATED_039' in __import__('os').environ", 1),
        (Variation(manner="daemon"), "__import__('multiprocessing').current_process().daemon", 1),
        (
            Variation(manner="thread"),
            "__import__('threading').current_thread() is not __import__('threading').main_thread()",
            1,
        ),
    ],
)
def test_foreign_code_sees_the_change(tmp_path, options, variation, shown, value):
    (seen,) = run(scorer(tmp_path, SCORE + f"    return float({shown})\n"), options, variation)
    assert seen.reward == value
    assert seen.facts["applied"] == list(variation.changes())


def test_a_shifted_clock_moves_the_date_and_neither_the_monotonic_clock_nor_file_times(
    tmp_path, options
):
    code = SCORE + (
        "    import os, time, threading\n"
        "    before = time.monotonic()\n"
        "    threading.Event().wait(0.1); time.sleep(0.1)\n"
        "    waited = time.monotonic() - before\n"
        "    open('/tmp/new', 'w').close()\n"
        "    assert 0.1 < waited < 10\n"
        "    return time.time() - os.stat('/tmp/new').st_mtime\n"
    )
    shifted, today = run(scorer(tmp_path, code), options, Variation(clock="+365d"), Variation())
    assert abs(shifted.reward - YEAR_S) < 60
    assert abs(today.reward) < 60
    # What its own code says of file times is known, so that a rule can tell.
    assert shifted.facts["file_times"] is True


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("    import subprocess; subprocess.run(['/sbin/ldconfig', '-V'])\n", "statically"),
        ("    import subprocess; subprocess.run(['true'], env={})\n", "without it"),
        ("    import os; os.environ.pop('LD_PRELOAD', 0); os.system('sleep 1')\n", "sleep"),
        ("    import ctypes; ctypes.CDLL(None).syscall(39)\n", "by number"),
    ],
)
def test_what_escapes_a_shifted_clock_is_not_applied(tmp_path, options, body, why):
    source = scorer(tmp_path, SCORE + body + "    return 1.0\n")
    shifted, other = run(source, options, Variation(clock="+1d"), Variation(timezone="Asia/Tokyo"))
    assert shifted.facts["applied"] == []
    assert why in shifted.facts["not_applied"]["clock"]
    assert "not_applied" not in other.facts


def test_files_list_in_another_order(tmp_path, options):
    code = SCORE + "    import os; return float(''.join(os.listdir('/qh/env/data')))\n"
    source = scorer(tmp_path, code)
    (tmp_path / "data").mkdir()
    for name in "123456":
        (tmp_path / "data" / name).write_text(name)
    usual, other = run(source, options, Variation(), Variation(order="reversed"))
    assert sorted(str(int(usual.reward))) == sorted(str(int(other.reward))) == list("123456")
    assert usual.reward != other.reward


def test_rows_scored_in_one_process_share_its_state_the_last_first(tmp_path, options):
    code = "SEEN = []\n" + SCORE + "    SEEN.append(prompt)\n    return float(len(SEEN))\n"
    source = scorer(tmp_path, code, ("one", "two", "three"))
    asks = [
        Ask(row, "oracle", Variation(manner=manner))
        for manner in ("", "reversed", "repeated")
        for row in ("one", "two", "three")
    ]
    rewards = [seen.reward for _, seen in reproduce(source, asks, options)]
    assert rewards == [1, 1, 1, 3, 2, 1, 2, 2, 2]


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ("__import__('os')._exit(3)", "no_reward"),
        ("__import__('os').kill(__import__('os').getpid(), 11)", "killed"),
        ("[].pop()", "crashed"),
        ("__import__('time').sleep(60)", "timeout"),
    ],
)
def test_one_row_that_dies_takes_no_other_with_it(tmp_path, options, body, outcome):
    code = SCORE + f"    if prompt == 'two':\n        {body}\n    return 1.0\n"
    source = scorer(tmp_path, code, ("one", "two", "three"))
    together = Variation(manner="reversed")
    asks = [Ask(row, "oracle", together) for row in ("one", "two", "three")]
    outcomes = [seen.outcome for _, seen in reproduce(source, asks, options)]
    assert outcomes == ["reward", outcome, "reward"]


def test_many_at_once_shows_that_calls_disturb_each_other(tmp_path, options):
    code = (
        "import time\nSTATE = {}\n"
        + SCORE
        + (
            "    STATE['n'] = STATE.get('n', 0) + 1\n    n = STATE['n']\n    time.sleep(0.05)\n"
            "    return float(STATE['n'] == n)\n"
        )
    )
    alone, many = run(scorer(tmp_path, code), options, Variation(), Variation(manner="many"))
    assert alone.reward == 1.0
    assert many.facts["distinct"] == 2


def test_load_is_there_and_ends_with_the_trial(tmp_path, options):
    code = SCORE + (
        "    import os, time\n"
        "    def used():\n"
        "        return {n: int(open('/proc/%s/stat' % n).read().rpartition(')')[2].split()[11])\n"
        "                for n in os.listdir('/proc') if n.isdigit() and int(n) != os.getpid()}\n"
        "    before = used(); time.sleep(0.5)\n"
        "    return float(sum(t - before.get(n, t) > 2 for n, t in used().items()))\n"
    )
    idle, busy = run(scorer(tmp_path, code), options, Variation(), Variation(load=2))
    assert (idle.reward, busy.reward) == (0, 2)


def test_a_network_is_not_applied_where_no_operator_allows_it(tmp_path, options):
    (seen,) = run(scorer(tmp_path, SCORE + "    return 1.0\n"), options, Variation(network=True))
    assert seen.facts["applied"] == []
    assert "operator" in seen.facts["not_applied"]["network"]


def test_without_the_library_a_clock_is_not_applied(tmp_path, options, monkeypatch):
    from qualityhub.engine.trials import runner

    monkeypatch.setattr(runner, "clock_library", lambda: None)
    (seen,) = run(scorer(tmp_path, SCORE + "    return 1.0\n"), options, Variation(clock="+1d"))
    assert seen.reward == 1.0
    assert "not installed" in seen.facts["not_applied"]["clock"]


TIME = "#!/bin/sh\nmkdir -p /logs/verifier\n%s\necho $(( $(date +%%s) / 86400 )) >/logs/verifier/reward.txt\n"


@pytest.mark.usefixtures("without_engine")
def test_a_task_sees_its_changes(tmp_path, options):
    source = task(tmp_path / "task", TIME % "[ $(hostname) = elsewhere ] && exit 3")
    clock = Variation(clock="+365d", timezone="Asia/Kathmandu", cpus=1, user="someone", noise=40)
    plain, shifted, named = run(
        source, options, Variation(), clock, Variation(hostname="elsewhere", umask=0o002, load=2)
    )
    assert shifted.reward - plain.reward == 365
    assert set(clock.changes()) - set(shifted.facts["applied"]) <= {"cpus"}
    assert named.outcome == "no_reward"
    assert named.facts["applied"] == ["hostname", "load", "umask"]


@pytest.mark.usefixtures("without_engine")
@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("/sbin/ldconfig -p >/dev/null", "ldconfig, which is linked statically"),
        ("env -i date", "env -i"),
        ("unset LD_PRELOAD; sleep 1", "LD_PRELOAD"),
    ],
)
def test_what_escapes_in_a_task_is_not_applied(tmp_path, options, line, why):
    source = task(tmp_path / "task", TIME % line)
    (seen,) = run(source, options, Variation(clock="+1d"))
    assert seen.facts["applied"] == []
    assert why in seen.facts["not_applied"]["clock"]


@pytest.mark.usefixtures("without_engine")
def test_a_program_that_hides_behind_a_script_is_seen_while_it_runs(tmp_path, options):
    source = task(tmp_path / "task", TIME % 'e=env; "$e" "-""i" sleep 1')
    (seen,) = run(source, options, Variation(clock="+1d"))
    assert "sleep runs without it" in seen.facts["not_applied"]["clock"]


@pytest.mark.usefixtures("without_engine")
def test_tests_of_a_task_without_pytest_have_no_order_to_turn(tmp_path, options):
    (seen,) = run(task(tmp_path / "task", TIME % ":"), options, Variation(manner="reversed"))
    assert seen.outcome == "reward"
    assert "pytest" in seen.facts["not_applied"]["manner"]
