"""The generic scorer: ``scorer.py`` with ``score(...)`` beside JSONL rows."""

from __future__ import annotations

import ast
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from qualityhub.engine.digest import digest_json, digest_tree
from qualityhub.engine.environments.files import shown
from qualityhub.engine.environments.formats.row_tasks import RowTasks
from qualityhub.engine.environments.model import Environment, Family, Problem
from qualityhub.engine.environments.package import (
    documentation_layer,
    environment_layer,
    make_environment,
    make_task,
    split_shared,
)
from qualityhub.engine.environments.problems import UNKNOWN_KEY
from qualityhub.engine.environments.python_source import (
    functions,
    parse_python,
    signature,
    top_level_names,
)
from qualityhub.engine.environments.rows import bad_row, read_rows
from qualityhub.engine.errors import UnreadablePackageError

if TYPE_CHECKING:
    from qualityhub.engine.environments.package import Package

NAME = "scorer"
FAMILY: Family = "scorer"
FILE = "scorer.py"
FUNCTION = "score"
_SIGNATURE = "score(prompt, completion, answer, info=None) -> float"
_KEYS = frozenset({"id", "prompt", "answer", "info", "correct"})
_MAX_UNKNOWN = 20


def detect(package: Package) -> str | None:
    """Return the scorer module, or the rows that only a scorer can judge."""
    if package.only == FILE or (not package.only and package.has(FILE)):
        return FILE
    for file, row in package.first_rows.items():
        if "prompt" in row and "answer" in row:
            return f"{file} has rows with prompt, answer"
    return None


def read(package: Package) -> Environment:
    """Read the rows as tasks; the scorer is parsed, never imported.

    Raises:
        UnreadablePackageError: No scorer, no ``score`` that takes what we pass, a row that cannot
            be used, two rows of one id, no row at all.
    """
    if package.only == FILE:
        package.only = ""
    entry, name = _entry(package)
    takes_info = _check_scorer(package, entry, name)
    dependencies, problems = package.dependencies(entry)
    shared, documentation = split_shared(
        package, leave_out=(*_all_row_files(package), *dependencies.sources)
    )
    environment = environment_layer(package, dependencies)
    tree = digest_tree(shared)
    docs = documentation_layer(documentation)
    tasks = RowTasks(package)
    unknown: dict[str, str] = {}
    for file in package.row_files:
        stem = PurePosixPath(file).name.split(".")[0] + "/" if len(package.row_files) > 1 else ""
        rows = read_rows(package.root, file, package.limits, taken=len(tasks.found))
        for index, (line, row) in enumerate(rows, 1):
            place = f"{file}:{line}"
            data = _checked(row, place)
            if data["info"] is not None and not takes_info:
                raise _missing(f"{place} has info, but {name} in {entry} does not take it")
            for key in row.keys() - _KEYS:
                unknown.setdefault(key, place)
            layers = {
                "statement": digest_json("statement", {"prompt": data["prompt"]}),
                "environment": environment,
                "verifier": digest_json(
                    "verifier",
                    {"scorer": tree, "answer": data["answer"], "info": data["info"]},
                ),
                **docs,
            }
            if data["correct"] is not None:
                layers["solution"] = digest_json("solution", {"correct": data["correct"]})
            task_id = str(row["id"]) if "id" in row else f"{stem}row-{index:04d}"
            tasks.add(make_task(task_id, layers, data), place)
    return make_environment(
        package,
        adapter=NAME,
        family=FAMILY,
        tasks=tasks.done(),
        files=package.entries,
        shared=shared,
        dependencies=dependencies,
        entry={"file": entry, "name": name},
        problems=(*problems, *tasks.problems, *_unknown(unknown)),
    )


def _all_row_files(package: Package) -> list[str]:
    """Return every row file at the root, also where SOURCE named one of them."""
    return [
        entry.path
        for entry in package.entries
        if "/" not in entry.path and entry.path.lower().endswith((".jsonl", ".jsonl.gz"))
    ]


def _entry(package: Package) -> tuple[str, str]:
    declared = package.manifest.text("entry") or f"{FILE}:{FUNCTION}"
    entry, _, name = declared.partition(":")
    if not package.has(entry):
        raise UnreadablePackageError(
            "package.missing_entry",
            f"There are rows but no {shown(entry)} beside them.",
            f"Add {FILE} with {_SIGNATURE}.",
        )
    return entry, name or FUNCTION


def _check_scorer(package: Package, entry: str, name: str) -> bool:
    """Check that the function takes what it will be given; return whether it takes info."""
    module = parse_python(package.text(entry), entry)
    function = functions(module).get(name)
    if function is None:
        if name in top_level_names(module):
            return True  # Imported or assigned: its signature shows when it runs.
        raise _missing(f"{entry} does not define {shown(name)}")
    place = f"{entry}:{function.lineno}"
    if isinstance(function, ast.AsyncFunctionDef):
        raise _missing(f"{place}: {name} is async")
    takes = signature(function)
    if takes.required > 3 or (len(takes.positional) < 3 and not takes.any_positional):
        raise _missing(f"{place}: {name} cannot be called with prompt, completion, answer")
    if takes.required_keywords:
        raise _missing(f"{place}: {name} also needs {', '.join(takes.required_keywords)}")
    return len(takes.positional) > 3 or takes.any_positional


def _missing(message: str) -> UnreadablePackageError:
    return UnreadablePackageError("package.missing_entry", f"{message}.", f"Define {_SIGNATURE}.")


def _checked(row: dict[str, Any], place: str) -> dict[str, Any]:
    for key in ("prompt", "answer"):
        if key not in row:
            raise bad_row(place, f"{key} is missing", "A row has prompt, answer and maybe info.")
    prompt = row["prompt"]
    if not isinstance(prompt, (str, list)) or not prompt:
        raise bad_row(place, "prompt must be text, or a list of messages, that is not empty")
    if "id" in row and (isinstance(row["id"], bool) or not isinstance(row["id"], (str, int))):
        raise bad_row(place, "id must be text or a whole number")
    answer = row["answer"]
    correct = row.get("correct", _as_completion(answer))
    if correct is not None and not isinstance(correct, str):
        raise bad_row(
            place, "correct must be a completion as text, or null where there is no reference"
        )
    return {"prompt": prompt, "answer": answer, "info": row.get("info"), "correct": correct}


def _as_completion(answer: Any) -> str | None:
    if isinstance(answer, str):
        return answer
    if isinstance(answer, (int, float)) and not isinstance(answer, bool):
        return str(answer)
    return None


def _unknown(keys: dict[str, str]) -> list[Problem]:
    return [
        Problem(
            UNKNOWN_KEY,
            f"Rows have the key {shown(key)!r}, which no scorer sees; put it into info.",
            place,
            ground=f"row key {shown(key)}",
        )
        for key, place in sorted(keys.items())[:_MAX_UNKNOWN]
    ]
