"""HumanEval-style rows: a prompt, a function to complete, and a ``check(candidate)``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qualityhub.engine.environments.formats.row_tasks import FunctionTask, read_functions
from qualityhub.engine.environments.model import Environment, Family, Problem
from qualityhub.engine.environments.problems import MISSING_PART
from qualityhub.engine.environments.rows import bad_row

if TYPE_CHECKING:
    from qualityhub.engine.environments.package import Package

NAME = "humaneval"
FAMILY: Family = "function"
_FIELDS = ("task_id", "prompt", "entry_point", "canonical_solution", "test")


def detect(package: Package) -> str | None:
    """Return the file whose first row has the columns of HumanEval."""
    for file, row in package.first_rows.items():
        if _looks_like(row):
            return f"{file} has rows with {', '.join(key for key in _FIELDS if key in row)}"
    return None


def read(package: Package) -> Environment:
    """Read every row file of the package as tasks.

    Raises:
        UnreadablePackageError: A row without its fields, two rows of one id, no row at all.
    """
    return read_functions(package, NAME, _task)


def _task(row: dict[str, Any], place: str) -> FunctionTask:
    data = _checked(row, place)
    statement = {"prompt": data["prompt"], "entry_point": data["entry_point"]}
    return FunctionTask(data["task_id"], statement, data, _problems(data, place))


def _looks_like(row: dict[str, Any]) -> bool:
    known = sum(key in row for key in _FIELDS)
    return known >= 4 or ("entry_point" in row and known >= 3)


def _checked(row: dict[str, Any], place: str) -> dict[str, Any]:
    for key in ("task_id", "prompt", "entry_point", "test"):
        value = row.get(key)
        if not isinstance(value, str) or not value.strip():
            raise bad_row(
                place,
                f"{key} is missing" if key not in row else f"{key} must be text that is not empty",
                f"A row has {', '.join(_FIELDS)}.",
            )
    if not row["entry_point"].isidentifier():
        raise bad_row(place, "entry_point is no Python name")
    solution = row.get("canonical_solution")
    if solution is not None and not isinstance(solution, str):
        raise bad_row(place, "canonical_solution must be text")
    return {**{key: row[key] for key in _FIELDS if key in row}, "canonical_solution": solution}


def _problems(data: dict[str, Any], place: str) -> list[Problem]:
    if "check" in data["test"]:
        return []
    return [
        Problem(
            MISSING_PART,
            f"The test of {data['task_id']} does not define check(candidate).",
            place,
            data["task_id"],
            "no check function",
        )
    ]
