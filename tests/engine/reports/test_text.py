from __future__ import annotations

from qualityhub.engine.reports.text import inspection_text


def test_the_report_says_verdict_counts_findings_and_what_it_rests_on(document):
    text = inspection_text(document)
    assert text.startswith("PARTIAL  demo  (humaneval, 8 tasks)")
    assert "1 admitted, 7 quarantined" in text
    assert "7 errors, 1 warning, 1 lead" in text
    assert "error VER001 Title of VER001" in text
    assert "t1, t2, t3, t4, t5 and 2 more" in text
    assert "expected 1.0" in text
    assert "seen     reward 0.0" in text
    assert "qualityhub reproduce fnd_VER001_t1 --report report.json" in text
    assert "ValueError: bad" in text
    assert "trace at step 3: first 1, then 2" in text
    assert "DET003  8 tasks: rows have no seed (would need: a seed)" in text
    assert "DET001  0 of 300 runs per task differed" in text
    assert "1,000 trials run, 416 from the store, 20.0 s · 50.0 trials/s" in text


def test_a_message_that_holds_for_one_task_alone_names_it(document):
    assert "for one:" not in inspection_text(document)
    document["findings"][0]["message"] = "It ran out of time."
    task = document["findings"][0]["task"]
    assert f"{task}, for one: It ran out of time." in inspection_text(document)


def test_known_and_waived_findings_are_marked(document):
    document["findings"][1]["waived"] = True
    text = inspection_text(document, known=frozenset({"fp-VER001-t1"}))
    assert "t1 (known), t2 (waived), t3" in text
    assert "5 errors" in text


def test_a_provisional_result_says_why(document):
    document["environment"] |= {"provisional": True, "provisional_reason": "image was rehearsed"}
    assert "provisional: image was rehearsed" in inspection_text(document)


def test_nothing_an_environment_wrote_reaches_the_terminal_as_control_characters(hostile_document):
    text = inspection_text(hostile_document, color=False)
    assert not [character for character in text if ord(character) < 32 and character != "\n"]
    assert "\u202e" not in text
    assert "\\x1b[31m" in text


def test_colours_appear_only_when_asked_for(document):
    assert "\x1b[" not in inspection_text(document, color=False)
    assert "\x1b[1;33mPARTIAL" in inspection_text(document, color=True)


def test_an_answer_key_is_not_printed(document, secret):
    assert secret not in inspection_text(document)


def test_an_unreadable_package_without_tasks_renders(document, make_finding):
    document |= {"verdict": "rejected", "tasks": [], "rules": [], "not_measured": []}
    document["environment"] |= {"tasks": 0, "adapter": "", "digest": ""}
    document["trials"] = {"run": 0, "cached": 0, "seconds": 0.0}
    document["findings"] = [make_finding("FMT001", None, evidence={}, reproduce="")]
    text = inspection_text(document)
    assert "REJECTED" in text
    assert "none could be read" in text
