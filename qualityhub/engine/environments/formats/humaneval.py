"""HumanEval-style rows: a prompt, a function to complete, and a ``check(candidate)``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qualityhub.engine.digest import digest_json
from qualityhub.engine.environments.formats.row_tasks import RowTasks, function_files
from qualityhub.engine.environments.model import Environment, Family, Problem
from qualityhub.engine.environments.package import (
    documentation_layer,
    environment_layer,
    make_environment,
    make_task,
)
from qualityhub.engine.environments.problems import MISSING_PART
from qualityhub.engine.environments.rows import bad_row, read_rows

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
    dependencies, problems = package.dependencies()
    files, shared, documentation = function_files(package, dependencies)
    layer = environment_layer(package, dependencies)
    docs = documentation_layer(documentation)
    tasks = RowTasks(package)
    for file in package.row_files:
        for line, row in read_rows(package.root, file, package.limits, taken=len(tasks.found)):
            place = f"{file}:{line}"
            data = _checked(row, place)
            layers = {
                "statement": digest_json(
                    "statement", {"prompt": data["prompt"], "entry_point": data["entry_point"]}
                ),
                "environment": layer,
                "verifier": digest_json("verifier", {"test": data["test"]}),
                **docs,
            }
            if data["canonical_solution"] is not None:
                layers["solution"] = digest_json(
                    "solution", {"canonical_solution": data["canonical_solution"]}
                )
            tasks.add(make_task(data["task_id"], layers, data), place)
            tasks.problems.extend(_problems(data, place))
    return make_environment(
        package,
        adapter=NAME,
        family=FAMILY,
        tasks=tasks.done(),
        files=files,
        shared=shared,
        dependencies=dependencies,
        problems=(*problems, *tasks.problems),
    )


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
