"""Files of the index, downloaded once per host, checked, and kept by their content."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from qualityhub.engine.digest import digest_json
from qualityhub.engine.errors import MachineryError
from qualityhub.engine.sandbox import store
from qualityhub.engine.sandbox.layers.model import (
    IndexFile,
    LayerUnavailable,
    Progress,
    StoppedError,
)
from qualityhub.engine.sandbox.layers.uv_failures import unreachable
from qualityhub.engine.sandbox.layers.workbench import LIMITS, Workbench, log_of
from qualityhub.engine.sandbox.port import Completed

KIND = "distributions"


class Downloads:
    """Brings files onto this host; what it hands out has the content that the lock names."""

    def __init__(self, bench: Workbench, tell: Progress) -> None:
        self._bench = bench
        self._tell = tell
        self._pins: list[store.Pin] = []

    def get(self, files: Iterable[IndexFile]) -> dict[IndexFile, Path]:
        """Return where each file lies, downloading what is missing in one go.

        They stay there for as long as this object lives.

        Raises:
            StoppedError: The index does not give one of them, or gives something else.
            MachineryError: The sandbox or our store failed.
        """
        wanted = list(dict.fromkeys(files))
        found = {file: path for file in wanted if (path := self._kept(file)) is not None}
        missing = [file for file in wanted if file not in found]
        if missing:
            self._tell(f"downloading {_count(missing)}")
            found |= self._download(missing)
        return found

    def hashed(self, files: Iterable[IndexFile]) -> dict[IndexFile, IndexFile]:
        """Return each file with its hash; one that the index left out is taken from the content."""
        wanted = dict.fromkeys(files)
        bare = [file for file in wanted if not file.sha256]
        paths = self._download(bare) if bare else {}
        return {
            file: replace(file, sha256=_digest(paths[file])) if file in paths else file
            for file in wanted
        }

    def _kept(self, file: IndexFile) -> Path | None:
        found = store.lookup(self._bench.home, KIND, _key(file)) if file.sha256 else None
        held = store.pin(found[0]) if found is not None else None
        if found is None or held is None:
            return None
        path = found[0] / file.name
        if not path.is_file():
            return None
        self._pins.append(held)
        return path

    def _download(self, files: list[IndexFile]) -> dict[IndexFile, Path]:
        asked = [{"url": file.url, "name": file.name, "sha256": file.sha256} for file in files]
        with store.fresh(self._bench.home, KIND) as place:
            seen = self._bench.fetch(
                self._bench.program("download"),
                stdin=json.dumps(asked).encode(),
                keep=place,
                keep_from="/qh/got",
            )
            for file, answer in zip(files, _answers(seen, len(files)), strict=True):
                _judge(file, answer)
            return {
                file: self._publish(file, place / str(number) / file.name)
                for number, file in enumerate(files)
            }

    def _publish(self, file: IndexFile, path: Path) -> Path:
        digest = _digest(path)
        if file.sha256 and digest != file.sha256:
            raise MachineryError("layer.lost", f"{file.name} changed on its way out of the sandbox")
        named = replace(file, sha256=digest)
        store.publish(self._bench.home, KIND, _key(named), path.parent, {"file": file.name})
        kept = self._kept(named)
        if kept is None:
            raise MachineryError("layer.lost", f"{file.name} was stored and is gone")
        return kept


def _key(file: IndexFile) -> str:
    # The same content under another name is another file to an installer.
    return digest_json("distribution", [file.name, file.sha256])


def _answers(seen: Completed, count: int) -> list[dict[str, str]]:
    if seen.timed_out:
        raise StoppedError(
            LayerUnavailable(
                f"packages did not download within {LIMITS.wall_s:.0f} s",
                "a faster package index",
                log_of(seen),
            )
        )
    try:
        answers = json.loads(seen.stdout)
    except ValueError:
        answers = None
    if seen.exit_code != 0 or not isinstance(answers, list) or len(answers) != count:
        raise MachineryError("layer.download", f"a download did not end well: {log_of(seen)}")
    return answers


def _judge(file: IndexFile, answer: dict[str, str]) -> None:
    problem, detail = answer["problem"], answer["detail"]
    log = f"{file.name}: {detail}\n"
    if problem == "closed":
        raise StoppedError(unreachable(log))
    if problem == "gone":
        raise StoppedError(
            LayerUnavailable(
                f"the package index names {file.name} but does not have it ({detail})",
                "a complete package index, or resolving again",
                log,
            )
        )
    if problem == "content":
        raise StoppedError(
            LayerUnavailable(
                f"the package index serves a {file.name} that is not the one it announced",
                f"{file.name} with sha256 {file.sha256} in the package index",
                log,
            )
        )
    if problem:
        raise StoppedError(
            LayerUnavailable(
                f"the package index sends us somewhere else for {file.name}: {detail}",
                "a package index that serves its files over HTTP or HTTPS",
                log,
            )
        )


def _digest(path: Path) -> str:
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _count(files: list[IndexFile]) -> str:
    return f"{len(files)} file{'s' if len(files) != 1 else ''}"
