"""``qualityhub trial``: what a trial wrote is shown, and harms no terminal."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from qualityhub.engine.reports.trial import trial_text
from qualityhub.engine.trials.evidence import trial_document
from qualityhub.engine.trials.model import Ask, Observation, TrialResult, Variation
from qualityhub.engine.trials.store import directory_store

KEY = "qh1:" + "ab12" * 16
HOSTILE = b"plain\x1b[2J\x1b]0;title\x07\xff\xe2\x80\xaeevil\r\n\tlast\n"


@pytest.fixture
def store(tmp_path):
    return directory_store(tmp_path / "home")


@pytest.fixture
def stored(store):
    """``stored({"stdout": b"…"})`` stores a trial with these outputs."""

    def make(outputs=None, **changes):
        result = TrialResult(
            key=KEY,
            observations=(Observation("reward", 0.5, detail="why", trial=KEY),),
            seconds=1.25,
            cpu_seconds=0.75,
            peak_memory_bytes=3 * 2**20,
            exit_code=0,
            evidence=store.keep(outputs) if outputs else "",
        )
        result = replace(result, **changes)
        store.put(result)
        return result

    return make


def test_it_shows_outcome_resources_and_every_output(call, stored):
    stored(
        {"stdout": b"out\n", "stderr": b"err\n", "/qh/out/test.log": b"1 failed\n"},
        signal=9,
        exit_code=None,
        out_of_memory=True,
        dropped_bytes=1234,
    )
    result = call("trial", KEY)
    assert result.code == 0
    for words in (
        "seen     reward 0.5\n           │ why\n",
        "ended    the memory limit ended it, signal 9",
        "used     1.250 s, 0.750 s of CPU, 3.0 MiB of memory at most",
        "1,234 bytes beyond the limit were dropped",
        "stdout, 4 bytes\n  │ out\n",
        "stderr, 4 bytes\n  │ err\n",
        "output of the verifier (/qh/out/test.log), 9 bytes\n  │ 1 failed\n",
    ):
        assert words in result.out


def test_a_terminal_receives_no_escapes(call, stored):
    stored({"stdout": HOSTILE})
    out = call("trial", KEY).out
    assert all(character.isprintable() or character == "\n" for character in out)
    assert "plain\\x1b[2J\\x1b]0;title\\x07\\xff\\u202eevil" in out
    assert "  │     last\n" in out


def test_what_was_left_out_is_marked_and_counted(call, store, stored):
    store.evidence_bytes = 30
    stored({"stdout": b"begin" + b"." * 1000 + b"end"})
    out = call("trial", KEY).out
    assert "stdout, 1,008 bytes\n  │ begin.....\n  … 978 bytes left out …\n" in out
    assert out.endswith(".end\n")


def test_previews_stand_for_outputs_that_they_hold_whole(call, stored):
    stored(stdout="all of it\n", stdout_bytes=10)
    out = call("trial", KEY).out
    assert "stdout, 10 bytes\n  │ all of it\n" in out
    assert "note" not in out


def test_evidence_that_is_damaged_leaves_the_preview_and_says_so(call, store, stored):
    result = stored({"stdout": b"x" * 5000}, stdout="x" * 4000, stdout_bytes=5000)
    [blob] = (store.blobs.root / result.evidence[:2]).rglob("*.zst")
    blob.write_bytes(blob.read_bytes()[:-2])
    out = call("trial", KEY).out
    assert "Only the previews are left" in out
    assert "stdout, 5,000 bytes\n  … 1,000 bytes left out …\n" in out


def test_a_trial_that_wrote_nothing_says_so(call, stored):
    stored()
    assert "wrote    nothing" in call("trial", KEY).out


def test_the_json_form_holds_trial_and_evidence(call, stored):
    stored({"stdout": HOSTILE})
    document = call("trial", KEY, "--format", "json").json
    assert document["schema"] == "qualityhub.trial/1"
    assert document["trial"] == KEY
    assert document["class"] == "answer_key"
    assert document["resources"]["peak_memory_bytes"] == 3 * 2**20
    [part] = document["evidence"]["parts"]
    assert part["head"] == HOSTILE.decode("utf-8", "backslashreplace")
    assert part["bytes"] == len(HOSTILE)


@pytest.mark.parametrize("name", [KEY[4:], KEY[:12], KEY[4:12]])
def test_the_beginning_of_a_key_is_enough(call, stored, name):
    stored()
    assert call("trial", name).out.startswith(f"TRIAL  {KEY}\n")


def test_a_beginning_of_several_keys_is_refused(call, store, stored):
    result = stored()
    other = KEY[:-1] + "0"
    store.put(replace(result, key=other))
    refused = call("trial", KEY[:14])
    assert refused.code == 2
    assert "2 trials begin so" in refused.err
    assert call("trial", other).code == 0


@pytest.mark.parametrize("name", ["qh1:" + "0" * 64, "../../etc/passwd", "qh1:" + "Z" * 64])
def test_an_unknown_key_is_exit_2_with_the_way_out(call, name):
    result = call("trial", name)
    assert (result.code, result.out) == (2, "")
    assert "--no-cache" in result.err


def test_a_key_that_is_too_short_is_exit_2(call):
    assert "8 characters" in call("trial", "qh1:ab12").err


def test_another_data_folder_can_be_named(call, stored, tmp_path):
    stored()
    (tmp_path / "home").rename(tmp_path / "moved")
    assert call("trial", KEY).code == 2
    assert call("trial", KEY, "--home", tmp_path / "moved").code == 0


def test_a_hub_is_asked_where_it_is_named(call, stored, monkeypatch):
    from qualityhub.client import QualityHubClient

    stored()
    local = json.loads(call("trial", KEY, "--format", "json").out)
    evidence = local.pop("evidence")
    asked = []

    def trial(self, key):
        asked.append(key)
        return {**local, "observations": []}

    monkeypatch.setattr(QualityHubClient, "trial", trial)
    monkeypatch.setattr(QualityHubClient, "trial_evidence", lambda self, key: evidence)
    out = call("trial", KEY[4:], "--url", "http://127.0.0.1:9").out
    assert asked == [KEY]
    assert "seen" not in out


def test_a_report_names_the_command(make_report, make_finding):
    from qualityhub.engine.reports.text import inspection_text

    evidence = {"expected": 1, "seen": [{"outcome": "crashed", "trial": KEY}]}
    report = make_report(make_finding(evidence=evidence)).as_json()
    assert f"output   qualityhub trial {KEY}\n" in inspection_text(report)
    plain = make_report(make_finding(evidence={"seen": {"trial": "not a key"}})).as_json()
    assert "qualityhub trial" not in inspection_text(plain)


def test_what_is_known_to_be_asked_is_said():
    asks = [Ask("t\x1b1", "oracle", Variation(seed=7)), Ask("t2", "nop", repeat=3)]
    result = TrialResult(
        key=KEY, observations=(Observation("reward", 0.0, trial=KEY),) * 2, seconds=1.0
    )
    evidence = {"state": "whole", "parts": []}
    text = trial_text(trial_document(result, asks), evidence)
    assert "seen     reward 0.0 from t\\x1b1, oracle, seed 7\n" in text
    assert "seen     reward 0.0 from t2, nop, repeat 3\n" in text
    # What does not fit the observations would name the wrong task.
    assert "seen     reward 0.0 (2 times)\n" in trial_text(
        trial_document(result, asks[:1]), evidence
    )
