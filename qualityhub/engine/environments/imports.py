"""Which modules Python source imports, read from its syntax."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qualityhub.engine.environments.python_source import parse_python

if TYPE_CHECKING:
    from collections.abc import Collection

_CAUGHT = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


@dataclass(frozen=True, slots=True)
class ImportedModule:
    """One import statement's module.

    Attributes:
        name: First part of the dotted name.
        line: 1-based line.
        guarded: Whether its absence is caught, or it is for type checkers alone.
        lazy: Whether it only happens when a function is called.
        standard: Whether it is part of the standard library.
    """

    name: str
    line: int
    guarded: bool
    lazy: bool
    standard: bool


def imported_modules(source: str, *, local: Collection[str] = ()) -> set[str]:
    """Return the third-party modules that the source needs.

    The standard library, relative imports, modules beside the source and guarded imports are left
    out.

    Args:
        source: Python source.
        local: Names of modules and packages that lie beside it.

    Raises:
        UnreadablePackageError: ``package.bad_python``.
    """
    return {
        item.name
        for item in find_imports(source, local=local)
        if not item.guarded and not item.standard
    }


def find_imports(
    source: str, *, local: Collection[str] = (), place: str = "source"
) -> tuple[ImportedModule, ...]:
    """Return every absolute import of a module that does not lie beside the source.

    Args:
        source: Python source.
        local: Names of modules and packages that lie beside it.
        place: File name, for messages.

    Raises:
        UnreadablePackageError: ``package.bad_python``.
    """
    module = parse_python(source, place)
    found: list[ImportedModule] = []
    waiting: list[tuple[ast.AST, bool, bool]] = [(module, False, False)]
    while waiting:
        node, guarded, lazy = waiting.pop()
        for name in _names(node):
            if name not in local:
                standard = name in sys.stdlib_module_names or name == "__future__"
                line = getattr(node, "lineno", 1)
                found.append(ImportedModule(name, line, guarded, lazy, standard))
        lazy = lazy or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        # The handlers and `else` of the same statement are not covered by it.
        covered = _covered(node)
        waiting.extend(
            (child, guarded or id(child) in covered, lazy) for child in ast.iter_child_nodes(node)
        )
    return tuple(sorted(found, key=lambda item: (item.line, item.name)))


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name.split(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        return [node.module.split(".")[0]]
    return []


def _covered(node: ast.AST) -> set[int]:
    """Return the ids of the child statements whose imports may fail without harm."""
    if isinstance(node, (ast.Try, ast.TryStar)):
        if any(_catches(handler.type) for handler in node.handlers):
            # A fallback import in a handler is one of two ways: neither is needed alone.
            return {id(item) for item in (*node.body, *node.handlers)}
        return set()
    checked = isinstance(node, ast.If) and _named(node.test) == "TYPE_CHECKING"
    suppressed = isinstance(node, ast.With) and any(
        isinstance(item.context_expr, ast.Call)
        and _named(item.context_expr.func) == "suppress"
        and any(_catches(argument) for argument in item.context_expr.args)
        for item in node.items
    )
    if isinstance(node, (ast.If, ast.With)) and (checked or suppressed):
        return {id(item) for item in node.body}
    return set()


def _catches(kind: ast.expr | None) -> bool:
    if kind is None:
        return True
    if isinstance(kind, ast.Tuple):
        return any(_catches(item) for item in kind.elts)
    return _named(kind) in _CAUGHT


def _named(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""
