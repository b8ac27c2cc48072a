"""Harbor task folders: one task, or a folder of them."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from qualityhub.engine.digest import digest_json, digest_tree
from qualityhub.engine.environments.files import read_text, shown
from qualityhub.engine.environments.formats.dockerfile import image_requirements
from qualityhub.engine.environments.formats.harbor_schema import SHAPE, memory_mb
from qualityhub.engine.environments.model import (
    Dependencies,
    Environment,
    Family,
    FileEntry,
    Problem,
    Task,
)
from qualityhub.engine.environments.package import make_environment, make_task, task_id_fault
from qualityhub.engine.environments.problems import MISSING_PART, UNKNOWN_KEY
from qualityhub.engine.environments.tables import check_table, plain, read_toml
from qualityhub.engine.errors import UnreadablePackageError

if TYPE_CHECKING:
    from qualityhub.engine.environments.package import Package

NAME = "harbor"
FAMILY: Family = "task"
CONFIG = "task.toml"
_VERIFIER_TIMEOUT_S = 600.0
_AGENT_TIMEOUT_S = 600.0
_MAX_UNKNOWN = 50
_COMPOSE = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml")


def detect(package: Package) -> str | None:
    """Return the task.toml files of the folder."""
    folders = _task_folders(package)
    if not folders:
        return None
    first = str(PurePosixPath(folders[0]) / CONFIG)
    return first if len(folders) == 1 else f"{first} and {len(folders) - 1} more"


def read(package: Package) -> Environment:
    """Read each task folder as a task.

    Raises:
        UnreadablePackageError: No task.toml, one that is not TOML, or a value of a wrong type.
    """
    if PurePosixPath(package.only).name == CONFIG:
        package.only = ""
    folders = _task_folders(package)
    if not folders:
        raise UnreadablePackageError(
            "package.missing_entry",
            f"{shown(package.name)} has no {CONFIG}, and no folder in it has one.",
            "A task folder has task.toml, instruction.md, environment/, tests/ and solution/.",
        )
    tasks: list[Task] = []
    problems: list[Problem] = []
    ids: dict[str, str] = {}
    for folder in folders:
        task, seen = _Reader(package, folder).read()
        if task.id in ids:
            raise UnreadablePackageError(
                "package.duplicate_task",
                f"{shown(folder)}: {shown(task.id)} is also the id of {shown(ids[task.id])}.",
                "Give every task a name of its own.",
            )
        ids[task.id] = folder
        tasks.append(task)
        problems.extend(seen)
    return make_environment(
        package,
        adapter=NAME,
        family=FAMILY,
        tasks=tasks,
        files=package.entries,
        shared=(),  # A task sees its own folders alone.
        dependencies=Dependencies(),
        problems=problems,
    )


def _task_folders(package: Package) -> list[str]:
    """Return the folders with a task.toml: the root alone, else one level down, else two."""
    if package.only:
        return [""] if PurePosixPath(package.only).name == CONFIG else []
    places = [PurePosixPath(entry.path) for entry in package.entries]
    found = [place.parent for place in places if place.name == CONFIG]
    for depth in (0, 1, 2):
        level = sorted(str(place) for place in found if len(place.parts) == depth)
        if level:
            return ["" if place == "." else place for place in level]
    return []


class _Reader:
    """Reads one task folder."""

    def __init__(self, package: Package, folder: str) -> None:
        self._package = package
        self._folder = folder
        self._place = f"{folder}/" if folder else ""
        self._entries = {entry.path: entry for entry in package.below(folder)}
        self._config_name = self._place + CONFIG
        self._id = folder
        self._problems: list[Problem] = []

    def read(self) -> tuple[Task, list[Problem]]:
        """Return the task and what was seen on the way."""
        config = read_toml(self._package.root, self._config_name)
        unknown = list(check_table(config, SHAPE, self._config_name))
        config = plain(config)
        self._id = self._task_id(config)
        for key in unknown[:_MAX_UNKNOWN]:
            self._problems.append(
                Problem(
                    UNKNOWN_KEY,
                    f"{key.says} {key.hint}",
                    self._config_name,
                    self._id,
                    f"unknown key {key.table + '.' if key.table else ''}{shown(key.key)}",
                )
            )
        steps = bool(config.get("steps")) or any(
            path.startswith("steps/") for path in self._entries
        )
        data = self._data(config, steps=steps)
        self._check_parts(data, windows=config.get("environment", {}).get("os") == "windows")
        return make_task(self._id, self._layers(config), data), self._problems

    def _task_id(self, config: dict[str, Any]) -> str:
        declared = config.get("task", {}).get("name")
        # A folder's own name changes with every copy; a declared name does not.
        task_id = self._folder or declared or "task"
        if fault := task_id_fault(task_id):
            raise UnreadablePackageError(
                "package.wrong_type", f"{shown(self._config_name)}: {fault}.", "Rename the task."
            )
        return str(task_id)

    def _data(self, config: dict[str, Any], *, steps: bool) -> dict[str, Any]:
        environment = config.get("environment", {})
        verifier = config.get("verifier", {})
        dockerfile = "environment/Dockerfile" if "environment/Dockerfile" in self._entries else ""
        network = environment.get("network_mode", "public")
        return {
            "path": self._folder or ".",
            "instruction": self._text("instruction.md"),
            "context": self._existing("environment"),
            "dockerfile": self._place + dockerfile if dockerfile else "",
            "docker_image": environment.get("docker_image") or "",
            "compose": any(f"environment/{name}" in self._entries for name in _COMPOSE),
            "verifier_timeout_s": float(verifier.get("timeout_sec", _VERIFIER_TIMEOUT_S)),
            "agent_timeout_s": float(config.get("agent", {}).get("timeout_sec", _AGENT_TIMEOUT_S)),
            "verifier_env": dict(verifier.get("env", {})),
            "solution_env": dict(config.get("solution", {}).get("env", {})),
            "environment_env": dict(environment.get("env", {})),
            "workdir": environment.get("workdir") or "",
            "memory_mb": memory_mb(environment),
            "cpus": environment.get("cpus"),
            "gpus": environment.get("gpus", 0),
            "os": environment.get("os", "linux"),
            "allow_internet": environment.get("allow_internet", network != "no-network"),
            "separate_verifier": verifier.get(
                "environment_mode", "separate" if "environment" in verifier else "shared"
            )
            == "separate",
            "tests": self._existing("tests"),
            "solution": self._existing("solution"),
            "steps": steps,
            "image_requirements": self._image_requirements(dockerfile),
        }

    def _layers(self, config: dict[str, Any]) -> dict[str, str]:
        steps = self._tree("steps/")
        tables = {name: config.get(name, {}) for name in ("environment", "agent", "artifacts")}
        image = self._image_files(config)
        layers = {
            "statement": digest_json(
                "statement", {"instruction": self._tree("instruction.md"), "steps": steps}
            ),
            "environment": digest_json(
                "environment-layer",
                {
                    "tree": self._tree("environment/"),
                    "tables": tables,
                    "manifest": self._package.manifest.layer,
                    # An archive of the image that lies in the task's own folder.
                    **({"image": digest_tree(image)} if image else {}),
                },
            ),
            "verifier": digest_json(
                "verifier",
                {
                    "tree": self._tree("tests/"),
                    "table": config.get("verifier", {}),
                    "steps": steps,
                    "step_tables": config.get("steps", []),
                    "strategy": config.get("multi_step_reward_strategy"),
                },
            ),
        }
        if self._existing("solution"):
            layers["solution"] = digest_json(
                "solution", {"tree": self._tree("solution/"), "table": config.get("solution", {})}
            )
        layers["documentation"] = digest_json(
            "documentation",
            {
                "tree": digest_tree(
                    entry
                    for path, entry in self._entries.items()
                    if path not in {CONFIG, "instruction.md"}
                    and entry not in image
                    and path.split("/")[0] not in {"environment", "tests", "solution", "steps"}
                ),
                "tables": {name: config.get(name) for name in ("task", "metadata", "source")},
            },
        )
        return layers

    def _image_files(self, config: dict[str, Any]) -> list[FileEntry]:
        """Return what ``docker_image`` names of the task's own files, but for ``environment/``."""
        name = str(config.get("environment", {}).get("docker_image") or "")
        name = str(PurePosixPath(name)) if name else ""
        if not name or self._tree_has(f"environment/{name}"):
            return []
        return [
            entry
            for path, entry in self._entries.items()
            if path == name or path.startswith(name + "/")
        ]

    def _tree_has(self, name: str) -> bool:
        return any(path == name or path.startswith(name + "/") for path in self._entries)

    def _check_parts(self, data: dict[str, Any], *, windows: bool) -> None:
        if data["steps"]:
            return
        script = "bat" if windows else "sh"
        if not data["instruction"].strip():
            self._missing("instruction.md", "no instruction")
        if f"tests/test.{script}" not in self._entries:
            self._missing(f"tests/test.{script}", "no tests")
        if data["solution"] and f"solution/solve.{script}" not in self._entries:
            self._missing(f"solution/solve.{script}", "no solution script")
        if not (data["dockerfile"] or data["docker_image"] or data["compose"]):
            self._missing("environment/Dockerfile", "no image")

    def _missing(self, part: str, ground: str) -> None:
        self._problems.append(
            Problem(
                MISSING_PART,
                f"{shown(self._id)} has no {part}, or an empty one.",
                self._place + part,
                self._id,
                ground,
            )
        )

    def _text(self, path: str) -> str:
        return self._package.text(self._place + path) if path in self._entries else ""

    def _existing(self, folder: str) -> str:
        prefix = folder + "/"
        present = any(path.startswith(prefix) for path in self._entries)
        return self._place + folder if present else ""

    def _tree(self, prefix: str) -> str:
        return digest_tree(
            entry for path, entry in self._entries.items() if path.startswith(prefix)
        )

    def _image_requirements(self, dockerfile: str) -> list[str]:
        if not dockerfile:
            return []

        def context_file(path: str) -> str | None:
            inside = str(PurePosixPath("environment") / path)
            if inside not in self._entries:
                return None
            return read_text(self._package.root, self._place + inside)

        return list(image_requirements(self._text(dockerfile), context_file))
