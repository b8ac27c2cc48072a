"""What a hostile verifier says reaches nobody's terminal, from its world to the report."""

from __future__ import annotations

import json

import pytest

from qualityhub.engine.inspect import InspectOptions, inspect_source
from qualityhub.engine.policy import AdmissionPolicy
from qualityhub.engine.reports.junit import inspection_junit
from qualityhub.engine.reports.markdown import inspection_markdown
from qualityhub.engine.reports.text import inspection_text

SAID = "\\x1b]0;owned\\x07\\x1b[2J\\x1b[31m\\u202e\\x9b5n\\x08\\r<script>alert(1)</script>"
SCORER = (
    f'SAID = "{SAID}"\n'
    "def score(prompt, completion, answer, info=None):\n"
    "    import os, sys\n"
    "    os.write(1, SAID.encode()); sys.stderr.write(SAID); sys.stderr.flush()\n"
    "    if completion == answer:\n"
    "        return 0.5\n"
    "    raise type(SAID[:3].strip('\\x1b]0') or 'Odd', (ValueError,), {})(SAID)\n"
)
CONTROLS = [chr(n) for n in (*range(9), 11, 12, *range(14, 32), 127, *range(128, 160), 0x202E)]


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    folder = tmp_path_factory.mktemp("source")
    (folder / "scorer.py").write_text(SCORER)
    row = {"id": "one", "prompt": "1+1?", "answer": "2"}
    (folder / "dataset.jsonl").write_text(json.dumps(row) + "\n")
    options = InspectOptions(policy=AdmissionPolicy(), home=tmp_path_factory.mktemp("home"))
    return json.loads(json.dumps(inspect_source(str(folder), options).as_json()))


@pytest.mark.parametrize(
    "render", [inspection_text, lambda d: inspection_markdown([d]), lambda d: inspection_junit([d])]
)
def test_no_control_character_is_left(document, render):
    assert any("owned" in json.dumps(finding) for finding in document["findings"])
    text = render(document)
    assert [char for char in CONTROLS if char in text] == []
