from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qualityhub.engine.errors import InvalidInputError
from qualityhub.engine.results.files import read_rows
from qualityhub.engine.results.identity import SeenRows
from qualityhub.engine.results.rows import MAX_LINE_BYTES, RolloutRow, RowError, decode_block

GOOD = b'{"task":"a","attempt":0,"passed":true}'


def every_row(path):
    return [row for block in read_rows(path) for row in block]


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (b'{"task":"a","attempt":0,"reward":NaN}', "results.not_finite", "NaN"),
        (b'{"task":"a","attempt":0,"reward":-Infinity}', "results.not_finite", "NaN"),
        (b'{"task":"a","attempt":0,"reward":1e999}', "results.not_finite", "reward"),
        (b'{"task":"a","attempt":0,"reward":"1"}', "results.wrong_type", "reward"),
        (b'{"task":"a","attempt":0,"reward":1e10}', "results.wrong_type", "reward"),
        (b'{"task":"a","attempt":0.5,"reward":1}', "results.wrong_type", "attempt"),
        (b'{"task":"a","attempt":-1,"reward":1}', "results.wrong_type", "attempt"),
        (b'{"task":7,"attempt":0,"reward":1}', "results.wrong_type", "task"),
        (b'{"task":"","attempt":0,"reward":1}', "results.wrong_type", "task"),
        (b'{"task":"a","reward":1}', "results.bad_row", "attempt"),
        (b'{"task":"a","attempt":0}', "results.bad_row", "neither reward nor passed"),
        (b'{"task":"a","attempt":0,"rewrd":1}', "results.unknown_key", "rewrd"),
        (
            b'{"task":"a","attempt":0,"reward":1,"validity":"broken"}',
            "results.wrong_type",
            "validity",
        ),
        (b'{"task":"a\\u0000","attempt":0,"reward":1}', "results.bad_row", "NUL"),
        (
            b'{"task":"a","attempt":0,"reward":1,"attributes":{"x":"\\u0000"}}',
            "results.bad_row",
            "NUL",
        ),
        (b'{"task":"\\ud800","attempt":0,"reward":1}', "results.not_utf8", "UTF-8"),
        (b'{"task":"\xff","attempt":0,"reward":1}', "results.not_utf8", "UTF-8"),
        (b'{"task":"a","attempt":0,"rew', "results.truncated", "middle of a row"),
        (b"[1, 2]", "results.wrong_type", "array"),
        (b"hello", "results.bad_row", "malformed"),
        (
            b'{"task":"a","attempt":0,"reward":1,"attributes":{"x":' + b"[" * 5000 + b"}}",
            "results.bad_row",
            "",
        ),
        (
            b'{"task":"a","attempt":0,"reward":1,"attributes":{"x":"'
            + b"x" * MAX_LINE_BYTES
            + b'"}}',
            "results.too_large",
            "bytes",
        ),
    ],
)
def test_a_bad_line_is_named_with_a_stable_code(line, code, said):
    with pytest.raises(RowError) as caught:
        decode_block(GOOD + b"\n\n" + line + b"\n" + GOOD, first_line=10, source="run.ndjson")
    assert caught.value.code == code
    assert caught.value.line == 12
    assert caught.value.message.startswith("run.ndjson:12: ")
    assert said in caught.value.message


def test_unknown_key_comes_with_the_nearest_known_one():
    with pytest.raises(RowError) as caught:
        decode_block(b'{"task":"a","attempt":0,"rewrd":1}')
    assert caught.value.hint == "Did you mean 'reward'?"


def test_pretty_printed_json_is_refused_rather_than_guessed():
    with pytest.raises(RowError) as caught:
        decode_block(b'{"task":"a",\n"attempt":0,\n"passed":true}\n')
    assert caught.value.code == "results.truncated"


def test_two_rows_on_one_line_are_refused():
    with pytest.raises(RowError, match="trailing"):
        decode_block(GOOD + b" " + GOOD + b"\n" + GOOD)


def test_rows_without_a_score_need_a_reason():
    row = decode_block(b'{"task":"a","attempt":0,"validity":"invalid-infra"}')[0]
    assert (row.value, row.solved) == (0.0, False)


def test_passed_overrules_the_reward_only_for_the_solved_count():
    row = decode_block(b'{"task":"a","attempt":0,"reward":0.4,"passed":true}')[0]
    assert (row.value, row.solved) == (0.4, True)


def test_a_large_block_decodes_without_the_slow_path(monkeypatch):
    from qualityhub.engine.results import rows as module

    monkeypatch.setattr(module, "_decode_one_by_one", None)
    block = b"".join(b'{"task":"t%d","attempt":0,"passed":true}\n' % i for i in range(40_000))
    assert len(block) > MAX_LINE_BYTES
    assert len(decode_block(block)) == 40_000


@pytest.mark.parametrize("packed", [False, True])
def test_csv_and_ndjson_give_the_same_rows(tmp_path, packed):
    columns = (
        "domain,task,task_digest,attempt,reward,passed,validity,latency_ms,input_tokens,attributes"
    )
    text = f'{columns}\r\ncode,"a,b",qh1:x,0,0.25,,valid,12.5,100,"{{""tool"": ""x""}}"\r\nmath,b,,3,,TRUE,model-failure,,,\r\n'
    rows = [
        {
            "domain": "code",
            "task": "a,b",
            "task_digest": "qh1:x",
            "attempt": 0,
            "reward": 0.25,
            "latency_ms": 12.5,
            "input_tokens": 100,
            "attributes": {"tool": "x"},
        },
        {"domain": "math", "task": "b", "attempt": 3, "passed": True, "validity": "model-failure"},
    ]
    pack = gzip.compress if packed else bytes
    # Suffixes lie: the content decides.
    (tmp_path / "rows.txt").write_bytes(pack(b"\xef\xbb\xbf" + text.encode()))
    (tmp_path / "rows.csv").write_bytes(pack("\n".join(map(json.dumps, rows)).encode()))
    assert every_row(tmp_path / "rows.txt") == every_row(tmp_path / "rows.csv")
    assert every_row(tmp_path / "rows.txt")[0] == RolloutRow(
        task="a,b",
        attempt=0,
        domain="code",
        task_digest="qh1:x",
        reward=0.25,
        latency_ms=12.5,
        input_tokens=100,
        attributes={"tool": "x"},
    )


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        (b"", "results.empty", "no rollout rows"),
        (b"\n\n", "results.empty", "no rollout rows"),
        (b"task,attempt,reward\n", "results.empty", "no rollout rows"),
        (b"PK\x03\x04xx", "results.unknown_format", "ZIP"),
        (b'[{"task":"a"}]', "results.unknown_format", "array"),
        ("task,attempt".encode("utf-16"), "results.not_utf8", "UTF-16"),
        (b"task;attempt;reward\na;0;1\n", "results.unknown_format", "semicolons"),
        (b"task,attempt,rewrd\na,0,1\n", "results.unknown_key", "rewrd"),
        (b"task,attempt,task\na,0,1\n", "results.bad_row", "twice"),
        (b"task,reward\na,1\n", "results.bad_row", "'attempt' is missing"),
        (b"task,attempt,reward\na,0,1\nb,1\n", "results.truncated", ":3: "),
        (b"task,attempt,reward\na,0,1\nb,1,1,9\n", "results.bad_row", ":3: "),
        (b"task,attempt,reward\na,0,nan\n", "results.not_finite", ":2: reward"),
        (b"task,attempt,reward\na,0,-inf\n", "results.not_finite", ":2: reward"),
        (
            b"task,attempt,reward\na,x,1\n",
            "results.wrong_type",
            ":2: attempt: Expected `int`, got 'x'.",
        ),
        (b"task,attempt,reward\na,0,\n", "results.bad_row", ":2: "),
        (b"task,attempt,reward\n\xff,0,1\n", "results.not_utf8", ":2: "),
        (b'task,attempt,reward\n"a,0,1\n', "results.truncated", "quoted"),
        (b"task,attempt,reward\n" + b"x" * 200_000 + b",0,1\n", "results.too_large", ":2: "),
        (GOOD + b'\n{"task":"b","att', "results.truncated", ":2: "),
        (gzip.compress(GOOD * 1)[:-6], "results.truncated", "gzip"),
        (gzip.compress(GOOD)[:-8] + b"\0" * 8, "results.unreadable", "damaged"),
        (b'{"task":"' + b"x" * (2 * MAX_LINE_BYTES), "results.too_large", ":1: "),
    ],
)
def test_a_broken_file_is_refused_with_its_place(tmp_path, content, code, said):
    path = tmp_path / "rows.bin"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError) as caught:
        every_row(path)
    assert caught.value.code == code
    assert said in caught.value.message


def test_a_cell_keeps_its_text_and_may_have_a_space_before_it(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("domain, task, attempt, passed\nnull, 007, 1, true\n")
    assert every_row(path) == [RolloutRow(task="007", attempt=1, domain="null", passed=True)]


def test_missing_files_and_folders_are_named(tmp_path):
    with pytest.raises(InvalidInputError, match="no file") as caught:
        every_row(tmp_path / "nothing.csv")
    assert caught.value.code == "results.not_found"
    with pytest.raises(InvalidInputError, match="not a regular file") as caught:
        every_row(tmp_path)
    assert caught.value.code == "results.not_a_file"


def test_a_decompression_bomb_ends_at_the_limit(tmp_path, monkeypatch):
    from qualityhub.engine.results import files

    monkeypatch.setattr(files, "MAX_FILE_BYTES", 1_000_000)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress((GOOD + b"\n") * 100_000))
    with pytest.raises(InvalidInputError) as caught:
        every_row(path)
    assert caught.value.code == "results.too_large"


def test_line_numbers_hold_across_blocks(tmp_path):
    path = tmp_path / "rows.ndjson"
    path.write_bytes((GOOD + b"\n") * 20_000 + b"{}\n")
    with pytest.raises(RowError) as caught:
        every_row(path)
    assert caught.value.line == 20_001


def test_the_same_row_again_changes_nothing_and_other_content_is_a_conflict():
    seen = SeenRows()
    first = decode_block(b'{"task":"a","attempt":0,"reward":1,"attributes":{"x":1,"y":2}}')
    same = decode_block(
        b'{"attempt":0,"task":"a","domain":"default","reward":1.0,"attributes":{"y":2,"x":1}}'
    )
    other = decode_block(b'{"task":"a","attempt":0,"reward":0.5}')
    elsewhere = decode_block(b'{"domain":"math","task":"a","attempt":0,"reward":0.5}')
    assert seen.new(first + same + other + elsewhere) == first + elsewhere
    assert (seen.accepted, seen.duplicates, seen.conflicts) == (2, 1, 1)
    assert seen.examples == ["default/a#0"]


PIECES = st.sampled_from(
    [
        b'{"task":"a",',
        b'"attempt":0',
        b'"reward":',
        b"NaN",
        b"1",
        b"}",
        b"{",
        b"[",
        b'"',
        b"\\u0000",
        b"\xff",
        b",",
        b"\n",
        b"\r\n",
        b" ",
        b"task,attempt,reward",
        b"a,0,1",
        b"\x1f\x8b",
        b"\0",
    ]
)


def outcome(read, *args):
    """Rows or the error: nothing else may come out."""
    try:
        return read(*args), None
    except InvalidInputError as error:
        return [], error


@given(st.one_of(st.binary(max_size=200), st.lists(PIECES, max_size=20).map(b"".join)))
@settings(max_examples=400, deadline=None)
def test_any_bytes_give_rows_or_a_named_error(content):
    rows, error = outcome(decode_block, content, 1, "x")
    assert all(row.task for row in rows)
    assert error is None or (error.code.startswith("results.") and error.message.startswith("x:"))


@given(
    st.one_of(st.binary(max_size=200), st.lists(PIECES, max_size=20).map(b"".join)), st.booleans()
)
@settings(max_examples=400, deadline=None)
def test_any_file_gives_rows_or_a_named_error(tmp_path_factory, content, packed):
    path = tmp_path_factory.mktemp("fuzz") / "rows"
    path.write_bytes(gzip.compress(content) if packed else content)
    rows, error = outcome(every_row, path)
    assert bool(rows) != bool(error)
    assert error is None or error.code.startswith("results.")
