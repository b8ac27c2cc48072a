"""Evidence is whole, or says what it left out, and costs nothing where there is little to say."""

from __future__ import annotations

import json

import msgspec
import pytest

from qualityhub.engine.blobs import DirectoryBlobs
from qualityhub.engine.environments.reader import read_environment
from qualityhub.engine.errors import SandboxUnavailableError
from qualityhub.engine.inspect import prepare_worlds
from qualityhub.engine.reports.safe import public_evidence
from qualityhub.engine.sandbox.port import Completed
from qualityhub.engine.sandbox.select import select_sandbox
from qualityhub.engine.trials.drivers import plan_trials
from qualityhub.engine.trials.evidence import (
    evidence_document,
    pack_outputs,
    result_of,
    trial_document,
    unpack_outputs,
)
from qualityhub.engine.trials.model import Ask
from qualityhub.engine.trials.runner import TrialRunner, world_digests
from qualityhub.engine.trials.store import DirectoryStore, NullStore, directory_store

NONCE = "0123456789abcdef" * 2
KEY = "qh1:" + "0" * 64


def completed(stdout=b"", stderr=b"", **changes):
    fields = {
        "exit_code": 0,
        "signal": None,
        "timed_out": False,
        "out_of_memory": False,
        "dropped_bytes": 0,
        "collected": {},
        "wall_s": 0.1,
        "cpu_s": 0.05,
        "peak_memory_bytes": 1000,
    }
    return Completed(stdout=stdout, stderr=stderr, **{**fields, **changes})


@pytest.fixture
def keep():
    """Records what was kept."""

    def kept(outputs):
        kept.calls.append(dict(outputs))
        return "blob"

    kept.calls = []
    return kept


def test_little_text_is_in_the_result_and_nowhere_else(keep):
    result = result_of(KEY, (), completed(b"out\n", b"\xc3\xa9" * 2000), NONCE, keep)
    assert (result.stdout, result.stderr, result.evidence) == ("out\n", "é" * 2000, "")
    assert (result.stdout_bytes, result.stderr_bytes) == (4, 4000)
    assert keep.calls == []
    document = evidence_document(result, None)
    assert document["state"] == "whole"
    assert [(part["name"], part["tail"]) for part in document["parts"]] == [
        ("stdout", "out\n"),
        ("stderr", "é" * 2000),
    ]


@pytest.mark.parametrize("stdout", [b"x" * 4001, b"\xff", b"a\0b"])
def test_what_a_preview_cannot_say_is_kept_as_it_was(keep, stdout):
    result = result_of(KEY, (), completed(stdout, b"err"), NONCE, keep)
    assert result.evidence == "blob"
    assert keep.calls == [{"stdout": stdout, "stderr": b"err"}]


def test_collected_files_are_kept(keep):
    files = {"/logs/verifier/reward.txt": b"1", "/qh/out/test.exit": b""}
    result_of(KEY, (), completed(b"", collected=files), NONCE, keep)
    assert keep.calls == [files]


def test_lines_of_our_own_protocol_are_left_out(keep):
    mark = NONCE.encode()
    ours = mark + b' {"case": 0}\n'
    result = result_of(KEY, (), completed(ours + b"a\r\nb\n" + ours, ours), NONCE, keep)
    assert (result.stdout, result.stderr) == ("a\r\nb\n", "")
    result_of(KEY, (), completed(ours + b"\xff\n" + ours), NONCE, keep)
    assert keep.calls == [{"stdout": b"\xff\n"}]


def test_how_it_ended_and_what_it_used_is_in_the_result(keep):
    end = completed(exit_code=None, signal=9, timed_out=True, out_of_memory=True, dropped_bytes=7)
    document = trial_document(result_of(KEY, (), end, NONCE, keep))
    assert document["ended"] == {
        "exit_code": None,
        "signal": 9,
        "timed_out": True,
        "out_of_memory": True,
    }
    assert document["resources"] == {
        "seconds": 0.1,
        "cpu_seconds": 0.05,
        "peak_memory_bytes": 1000,
        "dropped_bytes": 7,
    }
    assert document["class"] == "answer_key"


def test_small_outputs_stay_whole_and_large_ones_share_the_rest():
    outputs = {"stdout": b"s" * 5000, "/reward.txt": b"0.5", "stderr": b"a" * 3000 + b"z" * 3000}
    parts = unpack_outputs(pack_outputs(outputs, 1003))
    assert [part.name for part in parts] == list(outputs)
    stdout, reward, stderr = parts
    assert (reward.head, reward.tail, reward.gap) == (b"0.5", b"", 0)
    assert stdout.gap == 4500
    assert (stderr.head, stderr.tail) == (b"a" * 166, b"z" * 334)
    assert stderr.size == len(stderr.head) + stderr.gap + len(stderr.tail) == 6000
    assert all(part.gap == 0 for part in unpack_outputs(pack_outputs(outputs, 20_000)))


def test_many_outputs_stay_within_the_cap():
    outputs = {f"/f{number}": b"x" * 100 for number in range(50)}
    assert len(pack_outputs(outputs, 1000)) < 1000 + 50 * 40


@pytest.mark.parametrize(
    "document", [None, b"", b"not ours", msgspec.msgpack.encode({"a": 1}), b"\x91\xc1"]
)
def test_what_is_no_evidence_is_none(document):
    assert unpack_outputs(document) is None


def test_equal_outputs_of_repeats_are_one_blob(tmp_path):
    store = DirectoryStore(tmp_path / "trials", DirectoryBlobs(tmp_path / "evidence"))
    names = [
        result_of(f"{KEY[:-1]}{n}", (), completed(b"x" * 9000, wall_s=n), NONCE, store.keep)
        for n in range(3)
    ]
    assert len({result.evidence for result in names}) == 1
    assert len(list(store.blobs.iterate())) == 1


def test_a_store_without_blobs_keeps_none():
    assert NullStore().keep({"stdout": b"x"}) == ""


def test_outputs_never_leave_with_public_evidence():
    document = evidence_document(
        result_of(KEY, (), completed(b"the answer is 42"), NONCE, lambda outputs: ""), None
    )
    named = {"seen": {"outcome": "reward", "trial": KEY, "output": document}}
    assert "42" not in str(public_evidence(named))


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    try:
        found = select_sandbox("bwrap", home)
    except SandboxUnavailableError as error:
        pytest.skip(str(error))
    yield found
    found.close()


TALKATIVE = """    import os, sys
    sys.stdout.write("said " * 2000)
    sys.stderr.write(repr(sorted(os.environ)))
    return x
"""


def test_a_real_trial_keeps_all_it_wrote_and_no_secret_of_ours(sandbox, tmp_path, monkeypatch):
    monkeypatch.setenv("QH_DATABASE_URL", "postgresql://user:hunter2@db/qh")
    row = {
        "task_id": "a/0",
        "prompt": "def f(x):\n",
        "entry_point": "f",
        "canonical_solution": TALKATIVE,
        "test": "def check(f):\n    assert f(1) == 1\n    import os\n    print(dict(os.environ))\n",
    }
    path = tmp_path / "demo.jsonl"
    path.write_text(json.dumps(row) + "\n")
    environment = read_environment(str(path))
    home = tmp_path / "home"
    worlds = prepare_worlds(environment, sandbox, home, lambda text: None)
    store = directory_store(home)
    runner = TrialRunner(environment, worlds, sandbox, store, home)
    try:
        [trial] = plan_trials(environment, world_digests(worlds), [Ask("a/0", "oracle")])
        result = runner.run(trial)
        parts = store.evidence(result)
        assert result.observations[0].outcome == "reward"
        text = b"".join(part.head + part.tail for part in parts)
        assert text.count(b"said ") == 2000
        assert b"PYTHONHASHSEED" in text
        assert b"hunter2" not in text
        assert b"QH_DATABASE_URL" not in text
        # A damaged entry is found, and the trial runs again to the same evidence.
        again = runner.run(trial)
        assert again.cached
        [entry] = [item for item in store.root.rglob("*") if item.is_file()]
        entry.write_bytes(entry.read_bytes()[:-1])
        fresh = runner.run(trial)
        assert not fresh.cached
        assert fresh.evidence == result.evidence
    finally:
        runner.close()
