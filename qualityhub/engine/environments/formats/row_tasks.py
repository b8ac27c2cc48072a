"""Collect tasks that are rows: each id once, at least one; and read those that are functions."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qualityhub.engine.digest import digest_json
from qualityhub.engine.environments.files import MANIFEST, shown
from qualityhub.engine.environments.model import (
    Dependencies,
    Environment,
    FileEntry,
    Problem,
    Task,
)
from qualityhub.engine.environments.package import (
    documentation_layer,
    environment_layer,
    make_environment,
    make_task,
    split_shared,
    task_id_fault,
)
from qualityhub.engine.environments.problems import NAME_CLASH
from qualityhub.engine.environments.rows import bad_row, read_rows
from qualityhub.engine.errors import UnreadablePackageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from qualityhub.engine.environments.package import Package


@dataclass(frozen=True, slots=True)
class FunctionTask:
    """One row as code against tests.

    Attributes:
        id: Task id.
        statement: What its statement layer is made from.
        data: ``prompt, entry_point, test, canonical_solution`` and maybe ``nop``.
        problems: What is wrong with the row.
    """

    id: str
    statement: Mapping[str, str]
    data: dict[str, Any]
    problems: Sequence[Problem] = ()


class RowTasks:
    """Tasks by id with the place each came from."""

    def __init__(self, package: Package) -> None:
        self._package = package
        self.found: dict[str, tuple[Task, str]] = {}
        self.problems: list[Problem] = []
        self._folded: dict[str, str] = {}

    def add(self, task: Task, place: str) -> None:
        """Add one task.

        Raises:
            UnreadablePackageError: Its id cannot be one, or another row has it.
        """
        if fault := task_id_fault(task.id):
            raise bad_row(place, fault)
        if task.id in self.found:
            raise UnreadablePackageError(
                "package.duplicate_task",
                f"{shown(place)}: {shown(task.id)} is also the id of {self.found[task.id][1]}.",
                "Give every row an id of its own.",
            )
        self.found[task.id] = (task, place)
        folded = unicodedata.normalize("NFKC", task.id).casefold()
        first = self._folded.setdefault(folded, task.id)
        if first != task.id:
            self.problems.append(
                Problem(
                    NAME_CLASH,
                    f"The ids {shown(first)} and {shown(task.id)} look the same.",
                    place,
                    task.id,
                    "task ids that look the same",
                )
            )

    def done(self) -> tuple[Task, ...]:
        """Return the tasks in the order of their rows.

        Raises:
            UnreadablePackageError: ``package.empty``.
        """
        if not self.found:
            files = ", ".join(self._package.row_files) or "no JSONL file"
            raise UnreadablePackageError(
                "package.empty",
                f"{shown(self._package.name)} has no rows ({shown(files)}).",
                "Add at least one JSON object, one per line, to a .jsonl file.",
            )
        return tuple(task for task, _ in self.found.values())


def read_functions(
    package: Package, adapter: str, task_of: Callable[[dict[str, Any], str], FunctionTask]
) -> Environment:
    """Read every row file of a package as tasks that are code against tests.

    Args:
        package: The files.
        adapter: Name of the format.
        task_of: Makes a task of a row and its place, ``file:line``.

    Raises:
        UnreadablePackageError: A row that cannot be used, two rows of one id, no row at all.
    """
    dependencies, problems = package.dependencies()
    files, shared, documentation = _function_files(package, dependencies)
    around = {
        "environment": environment_layer(package, dependencies),
        **documentation_layer(documentation),
    }
    tasks = RowTasks(package)
    for file in package.row_files:
        for line, row in read_rows(package.root, file, package.limits, taken=len(tasks.found)):
            place = f"{file}:{line}"
            made = task_of(row, place)
            layers = {
                "statement": digest_json("statement", made.statement),
                "verifier": digest_json("verifier", {"test": made.data["test"]}),
                **around,
            }
            solution = made.data["canonical_solution"]
            if solution is not None:
                layers["solution"] = digest_json("solution", {"canonical_solution": solution})
            tasks.add(make_task(made.id, layers, made.data), place)
            tasks.problems.extend(made.problems)
    return make_environment(
        package,
        adapter=adapter,
        family="function",
        tasks=tasks.done(),
        files=files,
        shared=shared,
        dependencies=dependencies,
        problems=(*problems, *tasks.problems),
    )


def _function_files(
    package: Package, dependencies: Dependencies
) -> tuple[list[FileEntry], list[FileEntry], list[FileEntry]]:
    """Return all files, those that every task shares, and the documentation of row files."""
    if package.only:
        declarations = [path for path in dependencies.sources if (package.root / path).is_file()]
        files = [package.one(path) for path in (package.only, *declarations) if path != MANIFEST]
        return files, [], []
    shared, documentation = split_shared(
        package, leave_out=(*package.row_files, *dependencies.sources)
    )
    return list(package.entries), shared, documentation
