"""MBPP rows: a sentence, a reference program and the assertions it must keep.

Raw rows have ``text``, ``test_setup_code`` and ``challenge_test_list``; sanitized ones ``prompt``
and ``test_imports``. Both have ``task_id``, ``code`` and ``test_list``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qualityhub.engine.environments.formats.row_tasks import FunctionTask, read_functions
from qualityhub.engine.environments.model import Environment, Family
from qualityhub.engine.environments.rows import bad_row

if TYPE_CHECKING:
    from qualityhub.engine.environments.package import Package

NAME = "mbpp"
FAMILY: Family = "function"
_SENTENCES = ("text", "prompt")
_LISTS = ("test_list", "challenge_test_list", "test_imports")
_FIELDS = "task_id, text or prompt, code, test_list"


def detect(package: Package) -> str | None:
    """Return the file whose first row has the columns of MBPP."""
    for file, row in package.first_rows.items():
        if "test_list" in row and ("code" in row or any(key in row for key in _SENTENCES)):
            known = ("task_id", *_SENTENCES, "code", *_LISTS, "test_setup_code")
            return f"{file} has rows with {', '.join(key for key in known if key in row)}"
    return None


def read(package: Package) -> Environment:
    """Read every row file of the package as tasks.

    Raises:
        UnreadablePackageError: A row without its fields, two rows of one id, no row at all.
    """
    return read_functions(package, NAME, _task)


def _task(row: dict[str, Any], place: str) -> FunctionTask:
    data = _checked(row, place)
    return FunctionTask(_task_id(row, place), {"text": _sentence(row)}, data)


def _task_id(row: dict[str, Any], place: str) -> str:
    value = row.get("task_id")
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        raise bad_row(place, "task_id must be a number or text", f"A row has {_FIELDS}.")
    return str(value)


def _sentence(row: dict[str, Any]) -> str:
    return next((str(row[key]) for key in _SENTENCES if isinstance(row.get(key), str)), "")


def _checked(row: dict[str, Any], place: str) -> dict[str, Any]:
    if not _sentence(row).strip():
        raise bad_row(place, "text (or prompt) is missing", f"A row has {_FIELDS}.")
    for key in _LISTS:
        value = row.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise bad_row(place, f"{key} must be a list of text")
    if not row.get("test_list"):
        raise bad_row(place, "test_list has no assertion", "Without one, any program passes.")
    setup = row.get("test_setup_code", "")
    code = row.get("code")
    if not isinstance(setup, str):
        raise bad_row(place, "test_setup_code must be text")
    if code is not None and not isinstance(code, str):
        raise bad_row(place, "code must be text")
    lines = [*row.get("test_imports", []), setup, *row["test_list"]]
    return {
        "prompt": "",
        "entry_point": "",
        # What the published grader runs: the challenge assertions are for people who want more.
        "test": "\n".join(line for line in lines if line),
        "canonical_solution": code,
        "nop": "",
    }
