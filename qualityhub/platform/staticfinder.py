"""Serves the one file of the plotly package that pages need; nothing is fetched from elsewhere."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME = "plotly.min.js"
URL_PATH = f"plotly/{NAME}"


def plotly_folder() -> Path:
    """Return the folder of the installed plotly package that holds its script.

    Found without importing plotly, which would take longer than serving the file.
    """
    spec = find_spec("plotly")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("The plotly package is not installed.")
    return Path(spec.origin).parent / "package_data"


class PlotlyFinder(BaseFinder):
    """Finds ``plotly/plotly.min.js``."""

    def check(self, **_: Any) -> list[Any]:
        """Nothing can be configured wrongly."""
        return []

    def find(self, path: str, find_all: bool = False, **_: Any) -> Any:
        """Return the file for its one path; Django asks for a list where it wants all."""
        found = str(plotly_folder() / NAME) if path == URL_PATH else None
        if find_all:
            return [found] if found else []
        return found or []

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterable[Any]:  # noqa: ARG002
        """Yield the one file with its storage."""
        storage = FileSystemStorage(location=plotly_folder())
        storage.prefix = "plotly"  # type: ignore[attr-defined] # Django's own protocol.
        yield NAME, storage
