"""MBPP rows, raw and sanitized, from file to verdict."""

import json

import pytest

from qualityhub.engine.environments.reader import read_environment
from qualityhub.engine.errors import UnreadablePackageError
from qualityhub.engine.inspect import InspectOptions, inspect_source
from qualityhub.engine.policy import AdmissionPolicy

RAW = {
    "task_id": 601,
    "text": "Write a function to double every number of a list.",
    "code": "def double(numbers):\n    return [2 * number for number in numbers]",
    "test_list": ["assert double([1, 2]) == [2, 4]", "assert double([]) == []"],
    "test_setup_code": "",
    "challenge_test_list": [],
}
SANITIZED = {
    "source_file": "x",
    "task_id": 7,
    "prompt": "Write a function to find the area of a circle.",
    "code": "def area(radius):\n    return math.pi * radius ** 2\nimport math",
    "test_imports": ["import math"],
    "test_list": ["assert math.isclose(area(1), math.pi)"],
}


def jsonl(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_raw_and_sanitized_rows_become_function_tasks(package):
    environment = read_environment(str(package({"mbpp.jsonl": jsonl(RAW, SANITIZED)})))
    assert (environment.adapter, environment.family) == ("mbpp", "function")
    assert [task.id for task in environment.tasks] == ["601", "7"]
    assert environment.tasks[1].data["test"].splitlines()[0] == "import math"
    assert set(environment.tasks[0].layers) == {"statement", "environment", "verifier", "solution"}


def test_the_published_list_in_one_json_file_is_read(package):
    root = package({"sanitized-mbpp.json": json.dumps([SANITIZED, RAW])})
    environment = read_environment(str(root / "sanitized-mbpp.json"))
    assert [task.id for task in environment.tasks] == ["7", "601"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"test_list": []}, "test_list has no assertion"),
        ({"test_list": "assert True"}, "test_list must be a list of text"),
        ({"task_id": True}, "task_id must be a number or text"),
        ({"text": " "}, "text (or prompt) is missing"),
        ({"code": 3}, "code must be text"),
        ({"test_setup_code": 3}, "test_setup_code must be text"),
    ],
)
def test_a_row_that_cannot_be_used_is_named_with_its_line(package, change, words):
    root = package({"mbpp.jsonl": jsonl(SANITIZED, {**RAW, **change})})
    with pytest.raises(UnreadablePackageError, match=r"mbpp\.jsonl:2") as caught:
        read_environment(str(root), adapter="mbpp")
    assert words in str(caught.value.message)


def test_two_formats_in_one_folder_are_named(package):
    other = {
        "task_id": "a",
        "prompt": "def f():\n",
        "entry_point": "f",
        "canonical_solution": "    return 1\n",
        "test": "def check(f):\n    assert f() == 1\n",
    }
    root = package({"a.jsonl": jsonl(other), "b.jsonl": jsonl(RAW)})
    with pytest.raises(UnreadablePackageError) as caught:
        read_environment(str(root))
    assert "humaneval" in caught.value.message
    assert "mbpp" in caught.value.message


def test_a_json_file_that_is_no_list_says_so(package):
    root = package({"mbpp.json": json.dumps(RAW)})
    with pytest.raises(UnreadablePackageError, match="no list"):
        read_environment(str(root / "mbpp.json"), adapter="mbpp")


def test_a_wrong_reference_and_a_test_that_tests_nothing_are_found(package, tmp_path):
    wrong = {**RAW, "task_id": 2, "code": "def double(numbers):\n    return numbers"}
    empty = {**RAW, "task_id": 3, "test_list": ["assert True"]}
    root = package({"mbpp.jsonl": jsonl(RAW, wrong, empty)})
    options = InspectOptions(AdmissionPolicy(effort="quick"), tmp_path / "home")
    report = inspect_source(str(root), options)
    assert [(item.code, item.task) for item in report.findings if item.severity == "error"] == [
        ("VER001", "2"),
        ("VER002", "3"),
    ]
    assert report.verdict == "partial"
