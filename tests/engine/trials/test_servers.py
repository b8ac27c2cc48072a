from __future__ import annotations

import json
from dataclasses import replace

import pytest

from qualityhub.engine.environments.reader import read_environment
from qualityhub.engine.errors import MachineryError
from qualityhub.engine.inspect import prepare_worlds
from qualityhub.engine.sandbox.bwrap import BwrapSandbox
from qualityhub.engine.sandbox.port import Command, Completed
from qualityhub.engine.trials.drivers import plan_trials
from qualityhub.engine.trials.model import Ask, Trial, Variation
from qualityhub.engine.trials.runner import PROGRAMS, TrialRunner, run_trials, world_digests
from qualityhub.engine.trials.servers import ServerPool, enabled, kind_of, modules_of
from qualityhub.engine.trials.store import NullStore

COMMAND = Command(argv=("python", "-B", "/qh/programs/function.py"))


def done():
    return Completed(0, None, False, False, b"", b"", 0, {}, 0.0, 0.0, 0)


class FakeServer:
    def __init__(self, problem=None):
        self.problem = problem
        self.ran = 0
        self.closed = False

    def run(self, command):
        if self.problem:
            raise MachineryError("sandbox.lost", self.problem)
        self.ran += 1
        return done()

    def close(self):
        self.closed = True


class FakeSandbox:
    name = "bwrap"

    def __init__(self, problem=None, start_problem=None):
        self.problem, self.start_problem = problem, start_problem
        self.servers = []
        self.tried = 0

    def serve(self, command, preload=()):
        self.tried += 1
        if self.start_problem:
            raise MachineryError("sandbox.served", self.start_problem)
        self.servers.append(FakeServer(self.problem))
        return self.servers[-1]


class Plain:
    """A provider without fork servers."""


def test_few_trials_are_not_worth_a_server():
    pool = ServerPool(sandbox := FakeSandbox(), 4)
    pool.expect(["a"] * 3)
    assert [pool.run("a", COMMAND, ()) for _ in range(3)] == [None] * 3
    assert sandbox.tried == 0


def test_two_trials_with_heavy_imports_are():
    pool = ServerPool(sandbox := FakeSandbox(), 4)
    pool.expect(["a"] * 2)
    assert [pool.run("a", COMMAND, ("numpy",)) for _ in range(2)] == [done()] * 2
    assert [server.ran for server in sandbox.servers] == [2]


def test_known_results_are_not_waited_for():
    pool = ServerPool(sandbox := FakeSandbox(), 4)
    pool.expect(["a"] * 5)
    for _ in range(4):
        pool.known("a")
    assert pool.run("a", COMMAND, ()) is None
    assert sandbox.tried == 0


def test_one_server_runs_all_of_a_kind_and_kinds_never_share():
    pool = ServerPool(sandbox := FakeSandbox(), 4)
    pool.expect(["a", "b"] * 6)
    for _ in range(6):
        pool.run("a", COMMAND, ())
        pool.run("b", COMMAND, ())
    assert [server.ran for server in sandbox.servers] == [6, 6]


def test_a_failure_of_a_server_is_no_result_and_its_end():
    pool = ServerPool(sandbox := FakeSandbox(problem="gone"), 4)
    pool.expect(["a"] * 10)
    assert pool.run("a", COMMAND, ()) is None
    assert sandbox.servers[0].closed


def test_what_cannot_be_served_is_tried_once():
    pool = ServerPool(sandbox := FakeSandbox(start_problem="keeps files open"), 4)
    pool.expect(["a"] * 10)
    assert [pool.run("a", COMMAND, ()) for _ in range(10)] == [None] * 10
    assert sandbox.tried == 1


def test_a_provider_without_servers_runs_everything_cold():
    pool = ServerPool(Plain(), 4)
    pool.expect(["a"] * 10)
    assert pool.run("a", COMMAND, ()) is None


def test_the_oldest_servers_end_first():
    pool = ServerPool(sandbox := FakeSandbox(), 2)
    pool.expect(["a", "b", "c"] * 5)
    for kind in ("a", "b", "c"):
        pool.run(kind, COMMAND, ())
    assert [server.closed for server in sandbox.servers] == [True, False, False]


def test_closing_ends_every_server_and_starts_no_other():
    pool = ServerPool(sandbox := FakeSandbox(), 4)
    pool.expect(["a"] * 10)
    pool.run("a", COMMAND, ())
    pool.close()
    assert sandbox.servers[0].closed
    assert pool.run("a", COMMAND, ()) is None
    assert sandbox.tried == 1


@pytest.mark.parametrize(
    ("value", "wanted"), [("off", False), ("0", False), ("on", True), ("", True), (" OFF ", False)]
)
def test_the_variable_switches_it(value, wanted, monkeypatch):
    monkeypatch.setenv("QH_FORK_SERVER", value)
    assert enabled() is wanted
    assert enabled(value) is wanted


def trial(**changes):
    plain = Trial(
        "function",
        (Ask("t", "oracle"),),
        {"cases": []},
        {"/qh/env": "x"},
        Variation(),
        0,
        0,
        "w",
        9.0,
    )
    return replace(plain, **changes)


def test_cold_trials_and_tasks_are_of_no_kind():
    assert kind_of(trial(cold=True)) is None
    assert kind_of(trial(program="task")) is None


def test_trials_that_differ_in_input_alone_are_of_one_kind():
    assert kind_of(trial(payload={"cases": [1]}, repeat=2)) == kind_of(trial())
    assert kind_of(trial(variation=Variation(seed=3))) == kind_of(trial())


@pytest.mark.parametrize(
    "changes",
    [
        {"repeat": 1},
        {"variation": Variation(hash_seed=1)},
        {"trees": {"/qh/env": "y"}},
        {"world": "v"},
        {"program": "scorer"},
    ],
)
def test_trials_of_other_worlds_and_of_odd_repeats_are_of_another(changes):
    assert kind_of(trial(**changes)) != kind_of(trial())


def test_only_what_every_trial_imports_is_loaded_once(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"prompt": "p", "answer": "a"}\n')
    (tmp_path / "helper.py").write_text("import decimal\nimport numpy.linalg\n")
    (tmp_path / "unused.py").write_text("import torch\n")
    (tmp_path / "scorer.py").write_text(
        "import json, helper\n"
        "try:\n    import orjson\nexcept ImportError:\n    orjson = None\n"
        "def score(prompt, completion, answer, info=None):\n"
        "    import pandas\n    return 1.0\n"
    )
    found = modules_of(read_environment(str(tmp_path)), PROGRAMS / "scorer.py")
    assert {"numpy", "decimal", "common", "json"} <= set(found)
    assert not {"torch", "pandas", "orjson", "helper", "unused"} & set(found)


def preloaded(folder, files):
    (folder / "rows.jsonl").write_text('{"prompt": "p", "answer": "a"}\n')
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    environment = read_environment(str(folder))
    return set(modules_of(environment, PROGRAMS / "scorer.py")) & {"numpy", "yaml", "scipy"}


SCORE = "def score(prompt, completion, answer, info=None):\n    return 1.0\n"


@pytest.mark.parametrize(
    "effect",
    [
        "os.environ['OMP_NUM_THREADS'] = '1'",
        "os.environ.update(A='1')",
        "sys.path.insert(0, '/qh/env/lib')",
        "sys.path += ['/qh/env/lib']",
        "sys.path[:0] = ['/qh/env/lib']",
        "warnings.filterwarnings('error')",
        "json.loads = None",
        "x = setattr(json, 'loads', None)",
        "x = [setattr(json, 'loads', None)]",
        "x = f'{os.putenv(1, 2)}'",
        "x: os.putenv('a', 'b') = 1",
        "with warnings.catch_warnings():\n    import scipy",
        "try:\n    import scipy\nfinally:\n    os.umask(0)",
        "try:\n    import scipy\n    scipy.x = 1\nexcept ImportError:\n    pass",
        "try:\n    import scipy\nexcept ImportError:\n    os.putenv('a', 'b')",
        "try:\n    import scipy\nexcept KeyError:\n    pass",
        "if sys.flags.isolated:\n    import scipy",
        "if TYPE_CHECKING:\n    import scipy\nelse:\n    os.putenv('a', 'b')",
        "for x in ():\n    import scipy",
        "del json.loads",
        "assert os.putenv('a', 'b')",
        "def f(x=os.putenv('a', 'b')):\n    pass",
        "def f(x: os.putenv('a', 'b')):\n    pass",
        "@os.register_at_fork\ndef f():\n    pass",
        "def __getattr__(name):\n    pass",
        "class A:\n    os.putenv('a', 'b')",
        "class A:\n    def __init_subclass__(cls):\n        pass",
        "class A(metaclass=B):\n    pass",
        "@f\nclass A:\n    pass",
        "__path__ = []",
        "import acts",
        "from acts import x",
        "import package.acts",
        "from package import acts",
        "import through",
        "from package.through import x",
        "import native",
        "import folder",
        "from package import *",
        "from . import acts",
        "try:\n    import acts\nexcept ImportError:\n    pass",
    ],
)
def test_nothing_is_loaded_that_comes_after_an_effect(tmp_path, effect):
    head = "import os, sys, json, warnings\nimport yaml\n"
    files = {
        "acts.py": "import os\nos.environ['A'] = '1'\nx = 1\n",
        "through.py": "import acts\n",
        "native.so": "",
        "folder/data.txt": "",
        "package/__init__.py": "",
        "package/acts.py": "print()\n",
        "package/through.py": "from . import acts\nx = 1\n",
        "scorer.py": f"{head}{effect}\nimport numpy\n{SCORE}",
    }
    assert preloaded(tmp_path, files) == {"yaml"}


@pytest.mark.parametrize(
    "plain",
    [
        '"""Text."""',
        "from __future__ import annotations",
        "LIMIT = 60 * 60",
        "NAMES: dict[str, int] = {'a': -1}",
        "__all__ = ['score']",
        "def f(x: int | None = None, *, y=(1, 2)) -> list[int]:\n    os.putenv('a', 'b')",
        "class A(Exception):\n    x = 1\n\n    @property\n    def f(self):\n        print()",
        "if TYPE_CHECKING:\n    import scipy",
        "try:\n    import scipy\nexcept (ImportError, OSError.Exception):\n    scipy = None",
        "import helper",
        "from package import helper",
        "from package.helper import value",
        "import circle",
    ],
)
def test_what_comes_after_imports_and_definitions_alone_is_loaded(tmp_path, plain):
    files = {
        "helper.py": "value = 1\n",
        "circle.py": "import circle, helper\n",
        "package/__init__.py": "",
        "package/helper.py": "from . import __init__\nvalue = 1\n",
        "scorer.py": f"{plain}\nimport numpy\n{SCORE}",
    }
    assert preloaded(tmp_path, files) == {"numpy"}


def test_what_an_own_module_imports_is_loaded_in_its_place(tmp_path):
    files = {
        "helper.py": "import yaml\nprint()\nimport scipy\n",
        "scorer.py": f"import helper\nimport numpy\n{SCORE}",
    }
    assert preloaded(tmp_path, files) == {"yaml"}


def test_an_endless_chain_of_own_modules_is_given_up(tmp_path):
    chain = {f"m{number}.py": f"import m{number + 1}\n" for number in range(300)}
    files = {**chain, "m300.py": "", "scorer.py": f"import m0\nimport numpy\n{SCORE}"}
    assert preloaded(tmp_path, files) == set()


@pytest.fixture(scope="module")
def bwrap(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    for folder in (home, home.parent, home.parent.parent):
        folder.chmod(0o755)
    sandbox = BwrapSandbox(home)
    if not sandbox.capability().usable:
        pytest.skip("bubblewrap cannot run here")
    yield sandbox, home
    sandbox.close()


GOOD = "    return x + 1\n"
HOSTILE = {
    "good": GOOD,
    "wrong": "    return x\n",
    "raises": "    raise ValueError(x)\n",
    "exits": "    import os; os._exit(0)\n",
    "kills its parent": "    import os; os.kill(os.getppid(), 9); return x\n",
    "kills all": "    import os; os.kill(-1, 9); return x\n",
    "answers for us": (
        "    import gc, os, re\n"
        "    found = {o for o in gc.get_objects() if isinstance(o, bytes)}\n"
        "    text = open('/proc/self/maps').read()\n"
        "    for row in text.splitlines():\n"
        "        if row.split()[1].startswith('rw') and 'heap' in row:\n"
        "            a, b = (int(w, 16) for w in row.split()[0].split('-'))\n"
        "            memory = open('/proc/self/mem', 'rb'); memory.seek(a)\n"
        "            found |= set(re.findall(rb'[0-9a-f]{32}', memory.read(b - a)))\n"
        "    for mark in found:\n"
        '        line = mark + b\' \' + b\'{"case": 0, "outcome": "reward", "reward": 1.0}\\n\'\n'
        "        for pid in (1, os.getppid()):\n"
        "            for fd in range(12):\n"
        "                try: os.write(os.open('/proc/%d/fd/%d' % (pid, fd), 1), line)\n"
        "                except OSError: pass\n"
        "        for fd in range(3, 12):\n"
        "            try: os.write(fd, line)\n"
        "            except OSError: pass\n"
        "    return x\n"
    ),
    "writes our memory": (
        "    import os\n"
        "    os.close(os.open('/proc/%d/mem' % os.getppid(), os.O_RDWR))\n"
        "    return x + 1\n"
    ),
}


@pytest.fixture(scope="module")
def both(bwrap, tmp_path_factory):
    """What the same trials show on fork servers and cold."""
    sandbox, home = bwrap
    folder = tmp_path_factory.mktemp("source")
    rows = [
        {
            "task_id": f"t/{name}",
            "prompt": "def f(x):\n",
            "entry_point": "f",
            "canonical_solution": body,
            "test": "def check(candidate):\n    assert candidate(1) == 2\n",
        }
        for name, body in HOSTILE.items()
    ]
    path = folder / "tasks.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    environment = read_environment(str(path))
    worlds = prepare_worlds(environment, sandbox, home, lambda _: None)
    asks = [
        Ask(task.id, probe, repeat=repeat)
        for task in environment.tasks
        for probe in ("oracle", "nop")
        for repeat in (0, 1)
    ]
    seen = {}
    for served in (True, False):
        runner = TrialRunner(environment, worlds, sandbox, NullStore(), home, fork_server=served)
        found = seen[served] = {}
        trials = plan_trials(environment, world_digests(worlds), asks, 0)
        run_trials(
            runner,
            trials,
            1,
            lambda trial, result, found=found: found.update(
                zip(trial.asks, result.observations, strict=True)
            ),
        )
        runner.close()
    return seen


def test_fork_servers_ran_them(both):
    assert all(item.served for item in both[True].values())
    assert not any(item.served for item in both[False].values())


@pytest.mark.parametrize("name", HOSTILE)
def test_served_and_cold_trials_show_the_same(name, both):
    for ask, cold in both[False].items():
        if ask.task.endswith("/" + name) or ask.task == name:
            warm = both[True][ask]
            assert (warm.outcome, warm.reward, warm.facts) == (
                cold.outcome,
                cold.reward,
                cold.facts,
            )


@pytest.mark.parametrize(
    ("name", "reward"),
    [("good", 1.0), ("wrong", 0.0), ("answers for us", None), ("writes our memory", 0.0)],
)
def test_no_case_answers_for_our_program(name, reward, both):
    # What a case writes over its own answer costs it that one.
    seen = {ask: item for ask, item in both[True].items() if name in ask.task}
    assert {item.reward for ask, item in seen.items() if ask.probe == "oracle"} == {reward}
    assert {item.reward for ask, item in seen.items() if ask.probe == "nop"} == {0.0}
