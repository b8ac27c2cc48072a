"""Packages that attack the reader."""

from __future__ import annotations

import gzip
import json
import os
import socket

import pytest

from qualityhub.engine.environments.files import ReadLimits, read_text, walk
from qualityhub.engine.environments.reader import read_environment
from qualityhub.engine.environments.rows import parse_json
from qualityhub.engine.errors import InvalidInputError, UnreadablePackageError

SCORER = "def score(prompt, completion, answer, info=None):\n    return 0.0\n"
ROW = '{"prompt": "p", "answer": "a"}\n'


def refused(source, **options):
    with pytest.raises(InvalidInputError) as caught:
        read_environment(str(source), **options)
    return caught.value


@pytest.fixture
def scorer(package):
    return package({"scorer.py": SCORER, "d.jsonl": ROW})


@pytest.mark.parametrize(
    "target", ["/etc/passwd", "../../outside", "../package-other/x", "inner/../../x"]
)
def test_a_link_out_of_the_tree_is_refused_and_not_followed(scorer, target):
    (scorer.parent / "package-other").mkdir()
    (scorer.parent / "package-other" / "x").write_text("secret")
    (scorer / "leak.txt").symlink_to(target)
    error = refused(scorer)
    assert error.code == "package.link_escape"
    assert "leak.txt" in error.message


def test_a_chain_of_links_out_of_the_tree_is_refused(scorer):
    (scorer / "sub").mkdir()
    (scorer / "sub" / "up").symlink_to("..")
    (scorer / "chain").symlink_to("sub/up/../x")
    assert refused(scorer).code == "package.link_escape"


def test_links_inside_the_tree_are_entries_and_can_be_the_scorer(package):
    root = package({"impl.py": SCORER, "d.jsonl": ROW})
    (root / "scorer.py").symlink_to("impl.py")
    environment = read_environment(str(root))
    link = next(entry for entry in environment.files if entry.path == "scorer.py")
    assert (link.kind, link.target, link.size, link.sha256) == ("link", "impl.py", 0, "")


def test_links_that_go_round_in_circles_end(scorer):
    (scorer / "a").symlink_to("b")
    (scorer / "b").symlink_to("a")
    (scorer / "self").symlink_to(".")
    assert len(read_environment(str(scorer)).files) == 5


@pytest.mark.parametrize("name", ["scorer.py", "d.jsonl", "qualityhub.toml"])
def test_a_part_that_is_a_link_to_a_foreign_file_is_refused(scorer, name, tmp_path):
    (tmp_path / "foreign").write_text("x = 1\n")
    (scorer / name).unlink(missing_ok=True)
    (scorer / name).symlink_to(tmp_path / "foreign")
    assert refused(scorer).code == "package.link_escape"


def test_pipes_and_sockets_are_refused_without_blocking(scorer, monkeypatch):
    os.mkfifo(scorer / "pipe")
    assert refused(scorer).code == "package.special_file"
    (scorer / "pipe").unlink()
    monkeypatch.chdir(scorer)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("door")
        assert refused(scorer).code == "package.special_file"


def test_a_source_that_is_a_pipe_or_a_device_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert refused(tmp_path / "pipe.jsonl").code == "package.special_file"
    assert refused("/dev/zero").code == "package.special_file"


def test_a_name_that_is_not_utf8_is_refused_readably(scorer):
    (scorer / os.fsdecode(b"bad-\xff.txt")).write_text("x")
    error = refused(scorer)
    assert error.code == "package.not_utf8"
    error.message.encode()


def test_two_names_of_one_normal_form_are_refused(scorer):
    (scorer / "caf\u00e9").write_text("x")
    (scorer / "cafe\u0301").write_text("x")
    assert refused(scorer).code == "package.name_clash"


def test_names_that_differ_in_case_alone_are_reported(scorer):
    (scorer / "Words.txt").write_text("x")
    (scorer / "words.txt").write_text("x")
    assert [p.code for p in read_environment(str(scorer)).problems] == ["FMT003"]


def test_control_characters_of_names_never_reach_a_message(scorer):
    (scorer / "a\x1b[31m\n.txt").symlink_to("/etc/passwd")
    message = refused(scorer).message
    assert message.isprintable()


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (ReadLimits(file_bytes=100), "big.bin"),
        (ReadLimits(total_bytes=150), "package"),
        (ReadLimits(entries=3), "entries"),
        (ReadLimits(depth=2), "nested"),
        (ReadLimits(rows=2), "d.jsonl:3"),
        (ReadLimits(line_bytes=25), "d.jsonl:1"),
        (ReadLimits(source_bytes=20), "scorer.py"),
    ],
)
def test_every_limit_names_what_passed_it(package, limits, words):
    files = {"scorer.py": SCORER, "d.jsonl": ROW * 3, "big.bin": b"x" * 120, "1/2/3/4": "x"}
    error = refused(package(files), limits=limits)
    assert error.code == "package.too_large"
    assert words in error.message
    assert error.hint


def test_a_sparse_file_of_terabytes_is_refused_at_once(scorer):
    with (scorer / "huge").open("wb") as stream:
        stream.truncate(1 << 40)
    assert refused(scorer).code == "package.too_large"


def test_a_compressed_bomb_stops_at_the_limit(package):
    bomb = gzip.compress(b'{"task_id": "' + b"x" * 3_000_000)
    root = package({"bomb.jsonl.gz": bomb})
    error = refused(root, limits=ReadLimits(file_bytes=1_000_000))
    assert error.code == "package.too_large"
    assert "decompressed" in error.message


@pytest.mark.parametrize("cut", [b"\x1f\x8b garbage", gzip.compress(ROW.encode() * 50)[:-12]])
def test_a_broken_compressed_file_is_named(package, cut):
    error = refused(package({"scorer.py": SCORER, "d.jsonl.gz": cut}))
    assert error.code == "package.unreadable"
    assert "d.jsonl.gz" in error.message


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"prompt": "p", "answer": "a"', "not JSON"),
        ('{"prompt": "p", "prompt": "q", "answer": "a"}', "twice"),
        ('{"prompt": "p", "answer": {"x": 1, "x": 2}}', "twice"),
        ('{"prompt": "p", "answer": NaN}', "NaN"),
        ('{"prompt": "p", "answer": -Infinity}', "Infinity"),
        ('{"prompt": "p", "answer": 1e999}', "too large"),
        ('{"prompt": "p", "answer": ' + "9" * 5000 + "}", "digits"),
        ('{"prompt": "p", "answer": ' + "[" * 200 + "]" * 200 + "}", "nested"),
        ('{"prompt": "p", "answer": ' + "[" * 200_000, "nested"),
        ('{"prompt": "p", "answer": "\\ud800"}', "surrogate"),
        ('{"prompt": "p", "an\\udfffswer": "x", "answer": "a"}', "surrogate"),
        ('{"prompt": "p", "answer": "\\u0000"}', "NUL"),
        ('{"prompt": "p", "answer": "\x01"}', "not JSON"),
        ('["prompt", "answer"]', "no JSON object"),
        ('{"prompt": "p"}', "answer"),
        ('{"prompt": 5, "answer": "a"}', "prompt"),
        ('{"prompt": "p", "answer": "a", "correct": 5}', "correct"),
        ('{"prompt": "p", "answer": "a", "id": 1.5}', "id"),
        ('{"prompt": "p", "answer": "a", "id": ""}', "id"),
    ],
)
def test_a_line_that_two_readers_could_read_differently_is_refused(package, line, words):
    error = refused(package({"scorer.py": SCORER, "d.jsonl": ROW + line + "\n" + ROW}))
    assert error.code == "package.bad_row"
    assert error.message.startswith("d.jsonl:2")
    assert words in error.message
    assert len(error.message) < 400


def test_a_line_that_is_not_utf8_is_named(package):
    error = refused(
        package({"scorer.py": SCORER, "d.jsonl": ROW.encode() + b'{"prompt": "\xff"}\n'})
    )
    assert (error.code, error.message[:9]) == ("package.bad_row", "d.jsonl:2")


def test_a_scorer_that_is_not_utf8_is_named_by_line(package):
    error = refused(package({"scorer.py": b"# ok\n# \xff\n", "d.jsonl": ROW}))
    assert error.code == "package.not_utf8"
    assert "scorer.py:2" in error.message


def test_surrogate_pairs_and_large_integers_are_ordinary_values():
    assert parse_json(b'{"a": "\\ud83d\\ude00", "b": 123456789012345678901234567890}', "x:1") == {
        "a": "\N{GRINNING FACE}",
        "b": 123456789012345678901234567890,
    }


@pytest.mark.parametrize(
    "source", ["(" * 5000, "-" * 100_000 + "1", "\0", "x = " + "[" * 90 + "]" * 89]
)
def test_python_that_would_exhaust_a_parser_is_refused(package, source):
    error = refused(package({"scorer.py": source, "d.jsonl": ROW}))
    assert error.code == "package.bad_python"
    assert "scorer.py" in error.message


@pytest.mark.parametrize(
    "text", ["a = ", "a = 1\na = 2", "x = " + "[" * 5000, "\x00", "a.b = 1\na = 2"]
)
def test_a_manifest_that_is_no_toml_is_named(scorer, text):
    (scorer / "qualityhub.toml").write_text(text)
    error = refused(scorer)
    assert error.code == "package.bad_toml"
    assert "qualityhub.toml" in error.message


def test_an_unreadable_file_is_named_to_an_ordinary_user(scorer):
    if os.geteuid() == 0:
        pytest.skip("the superuser may read everything")
    (scorer / "scorer.py").chmod(0)
    error = refused(scorer)
    assert error.code == "package.unreadable"
    assert "scorer.py" in error.message


def test_reading_never_leaves_the_tree_by_a_path(scorer):
    for path in ("../package/scorer.py/../../x", "/etc/passwd", "..", "a\0b"):
        with pytest.raises(UnreadablePackageError):
            read_text(scorer, path)


def test_the_tree_is_sorted_and_complete(package):
    root = package(
        {"b/c.txt": "1", "b.txt": "2", "a": "3", "qualityhub.toml": "", "b/qualityhub.toml": ""}
    )
    assert [entry.path for entry in walk(root)] == ["a", "b.txt", "b/c.txt", "b/qualityhub.toml"]


def test_ten_thousand_rows_are_read_in_a_few_seconds(package):
    rows = "".join(
        json.dumps({"prompt": f"{i} + 1", "answer": str(i + 1)}) + "\n" for i in range(10_000)
    )
    environment = read_environment(str(package({"scorer.py": SCORER, "d.jsonl": rows})))
    assert len({task.digest for task in environment.tasks}) == 10_000


def test_an_archive_of_an_image_may_be_larger_than_other_files(package):
    root = package({"scorer.py": SCORER, "d.jsonl": ROW, "image.tar": b"x" * 300})
    assert read_environment(str(root), limits=ReadLimits(file_bytes=200)).tasks
    error = refused(root, limits=ReadLimits(file_bytes=200, image_bytes=250))
    assert error.code == "package.too_large"
    assert "image.tar" in error.message
