from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from qualityhub.engine.environments.reader import read_environment
from qualityhub.engine.errors import QualityHubError
from qualityhub.engine.inspect import prepare_worlds
from qualityhub.engine.interrupts import held
from qualityhub.engine.sandbox.bwrap import BwrapSandbox
from qualityhub.engine.trials.drivers import plan_trials
from qualityhub.engine.trials.model import Ask
from qualityhub.engine.trials.runner import TrialRunner, run_trials, world_digests
from qualityhub.engine.trials.store import directory_store

ROWS = 600


@pytest.fixture
def handlers():
    """SIGINT and SIGTERM raise, whatever the test run itself does with them."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, signal.default_int_handler) for number in numbers]
    yield numbers
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def run(tmp_path, handlers):
    """Run many trials of a scorer with fork servers; returns the results that arrived."""
    folder, home = tmp_path / "source", tmp_path / "home"
    folder.mkdir()
    (folder / "scorer.py").write_text(
        "def score(prompt, completion, answer):\n    return float(completion == answer)\n"
    )
    (folder / "dataset.jsonl").write_text(
        "".join(f'{{"id": "r{row}", "prompt": "p", "answer": "{row}"}}\n' for row in range(ROWS))
    )
    environment = read_environment(str(folder))
    sandbox = BwrapSandbox(home)
    worlds = prepare_worlds(environment, sandbox, home, lambda _: None)
    asks = [Ask(task.id, "oracle", repeat=at) for task in environment.tasks for at in range(4)]
    trials = plan_trials(environment, world_digests(worlds), asks, 0)

    def once(on_result, seen):
        runner = TrialRunner(
            environment, worlds, sandbox, directory_store(home), home, fork_server=True
        )

        def heard(trial, result):
            seen.append(result)
            on_result(len(seen))

        try:
            run_trials(runner, trials, 2, heard)
        finally:
            runner.close()
            assert not list((home / "staging").iterdir())

    yield once
    sandbox.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("after_s", [0.1, 0.3, 0.9])
def test_a_signal_ends_a_run_soon_and_leaves_no_thread_behind(run, number, after_s):
    timer = threading.Timer(after_s, os.kill, (os.getpid(), number))
    seen = []
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run(lambda _: time.sleep(0.05), seen)
    finally:
        timer.join()
    assert not [item for item in threading.enumerate() if item.name.startswith("trial")]


def test_what_was_done_before_an_interrupt_is_not_done_again(run):
    class EnoughError(QualityHubError):
        pass

    def stop(count):
        if count == 3:
            raise EnoughError("test.enough", "enough")

    first, second = [], []
    with pytest.raises(EnoughError):
        run(stop, first)
    run(lambda _: None, second)
    kept = {result.key for result in second if result.cached}
    assert {result.key for result in first} <= kept


def test_a_held_signal_comes_out_where_it_is_delivered(handlers):
    with held() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signals.deliver()
    assert [signal.getsignal(number) for number in handlers] == [signal.default_int_handler] * 2


def test_a_held_signal_comes_out_at_the_end_also_of_nested_holds(handlers):
    done = []

    def nested():
        with held():
            with held():
                os.kill(os.getpid(), signal.SIGINT)
                done.append("inner")
            done.append("outer")

    with pytest.raises(KeyboardInterrupt):
        nested()
    assert done == ["inner", "outer"]


def test_a_second_signal_is_not_held(handlers):
    with held():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_another_thread_holds_nothing(handlers):
    found = []

    def look():
        with held():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]
