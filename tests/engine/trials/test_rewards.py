"""References that reach for the reward themselves, in a real sandbox: the verifier has the word."""

from __future__ import annotations

import pytest

from qualityhub.engine.inspect import InspectOptions, reproduce
from qualityhub.engine.policy import AdmissionPolicy
from qualityhub.engine.trials.model import Ask
from qualityhub.engine.trials.probes import NOP, ORACLE

HONEST = "if [ -e /app/done ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt"
ALWAYS = "while :; do echo 1 >/logs/verifier/reward.txt; sleep 0.02; done"
ONCE = (
    "while ! [ -s /logs/verifier/reward.txt ]; do sleep 0.02; done; sleep 0.1; "
    "echo 1 >/logs/verifier/reward.txt"
)
WAITING = (
    "while ! grep -qs '/tests/test[.]sh' /proc/[0-9]*/cmdline; do sleep 0.02; done; "
    'while :; do echo "{\\"reward\\": 1}" >/logs/verifier/reward.json; sleep 0.02; done'
)
LATER = (
    "while ! [ -e /qh/out/test.log ]; do sleep 0.02; done; kill -9 2; "
    "echo 0 >/qh/out/test.exit; echo 1 >/logs/verifier/reward.txt"
)
SERVICE = (
    "import http.server as h; "
    "h.HTTPServer(('127.0.0.1', 8099), h.SimpleHTTPRequestHandler).serve_forever()"
)
ASKING = (
    "python3 -c \"import urllib.request as u; u.urlopen('http://127.0.0.1:8099/')\" "
    "&& echo 1 >/logs/verifier/reward.txt || echo 0 >/logs/verifier/reward.txt"
)
FORGED_END = "echo 1 >/logs/verifier/reward.txt; echo 0 >/qh/out/test.exit"


def identity(name):
    return name.replace(" ", "-")


def daemon(body):
    """Return shell lines that leave a deaf process in a session of its own."""
    quoted = body.replace("'", "'\"'\"'")
    return f"trap '' TERM HUP; setsid bash -c '{quoted}' >/dev/null 2>&1 </dev/null &\nsleep 0.2"


PLANTED = {
    "a reward": "echo 1 >/logs/verifier/reward.txt",
    "a document": "echo '{\"reward\": 1}' >/logs/verifier/reward.json",
    "a folder": "mkdir -p /logs/verifier/reward.json/x; echo 1 >/logs/verifier/reward.txt",
    "a linked folder": (
        "mkdir /app/mine; rm -r /logs/verifier; ln -s /app/mine /logs/verifier; "
        "echo 1 >/app/mine/reward.txt"
    ),
    "a pipe": "rm -f /logs/verifier/reward.txt; mkfifo /logs/verifier/reward.txt",
    "a link": "echo 1 >/app/r; ln -s /app/r /logs/verifier/reward.txt",
    "no rights": (
        "echo 1 >/logs/verifier/reward.txt; chmod 444 /logs/verifier/reward.txt; "
        "chmod 555 /logs/verifier"
    ),
    "our own files": (
        "echo 0 >/qh/out/test.exit; echo all passed >/qh/out/test.log; mkdir /qh/out/forged"
    ),
    "other tests": "echo 'echo 1 >/logs/verifier/reward.txt' >/tests/test.sh",
    "linked tests": (
        "rm /tests/test.sh; echo 'echo 1 >/logs/verifier/reward.txt' >/app/t; "
        "ln -s /app/t /tests/test.sh"
    ),
    "no tests": "rm -rf /tests/* /tests/.??*; touch /qh/tests/x; rm -rf /qh/tests /qh/programs",
}
CASES = {
    "honest": ("touch /app/done", HONEST),
    **{f"planted {name}": (body, HONEST) for name, body in PLANTED.items()},
    **{
        f"solved and planted {name}": (f"{body}\ntouch /app/done", HONEST)
        for name, body in PLANTED.items()
    },
    "daemon always": (daemon(ALWAYS), HONEST),
    "daemon once": (daemon(ONCE), HONEST),
    "daemon waiting": (daemon(WAITING), f"sleep 1; {HONEST}"),
    "service": (
        f'setsid python3 -c "{SERVICE}" >/dev/null 2>&1 </dev/null &\nsleep 1',
        ASKING,
    ),
    "kills parent": (f"{FORGED_END}\nkill -9 $PPID", HONEST),
    "kills everybody": (f"{FORGED_END}\nkill -9 -1", HONEST),
    "kills later": (daemon(LATER), f"sleep 2; {HONEST}"),
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What every case's reference came to."""
    folder = tmp_path_factory.mktemp("set")
    with pytest.MonkeyPatch.context() as patch:
        # Rehearsed: what is shown here needs no image.
        patch.setenv("DOCKER_HOST", f"unix://{folder}/none.sock")
        for name, (solution, verifier) in CASES.items():
            for path, text in {
                "task.toml": f'schema_version = "1.4"\n[task]\nname = "x/{identity(name)}"\n[environment]\nworkdir = "/app"\n',
                "instruction.md": "Make /app/done.\n",
                "environment/Dockerfile": "FROM python:3\nWORKDIR /app\n",
                "solution/solve.sh": f"#!/bin/bash\n{solution}\n",
                "tests/test.sh": f"#!/bin/bash\n{verifier}\n",
            }.items():
                place = folder / "set" / name.replace(" ", "-") / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text)
        home = tmp_path_factory.mktemp("home")
        options = InspectOptions(policy=AdmissionPolicy(), home=home, sandbox="bwrap")
        asks = [Ask(identity(name), ORACLE) for name in CASES] + [Ask("honest", NOP)]
        observed = reproduce(str(folder / "set"), asks, options)
    return {(ask.task, ask.probe): observation for ask, observation in observed}


def test_an_honest_reference_has_its_reward(seen):
    assert seen["honest", ORACLE].reward == 1.0
    assert seen["honest", NOP].reward == 0.0


@pytest.mark.parametrize("name", PLANTED)
def test_what_was_planted_before_is_gone(seen, name):
    planted, solved = (
        seen[identity(f"planted {name}"), ORACLE],
        seen[identity(f"solved and planted {name}"), ORACLE],
    )
    assert (planted.outcome, planted.reward) == ("reward", 0.0), planted.detail
    assert (solved.outcome, solved.reward) == ("reward", 1.0), solved.detail
    assert "forged" not in solved.facts


@pytest.mark.parametrize("name", ["always", "once"])
def test_a_daemon_that_writes_rewards_ends_before_the_verifier_starts(seen, name):
    observed = seen[identity(f"daemon {name}"), ORACLE]
    assert (observed.outcome, observed.reward) == ("reward", 0.0), observed.detail
    assert observed.facts["forged"] is True


def test_a_daemon_that_waits_for_the_verifier_makes_the_reward_worth_nothing(seen):
    observed = seen["daemon-waiting", ORACLE]
    assert (observed.outcome, observed.reward) == ("no_reward", None)
    assert "left behind writes the reward" in observed.detail


def test_a_service_that_the_task_is_about_lives_on(seen):
    observed = seen["service", ORACLE]
    assert (observed.outcome, observed.reward) == ("reward", 1.0), observed.detail
    assert "forged" not in observed.facts


@pytest.mark.parametrize("name", ["kills parent", "kills everybody", "kills later"])
def test_who_ends_what_runs_the_verifier_has_no_reward(seen, name):
    observed = seen[identity(name), ORACLE]
    # Ended by all its means, it is as if nothing had been written; what it spares goes on honestly.
    assert observed.reward in {None, 0.0}
    assert observed.outcome in {"killed", "reward"}
