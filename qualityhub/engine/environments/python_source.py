"""Look at foreign Python by its syntax alone; nothing is imported or compiled to byte code."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass

from qualityhub.engine.environments.files import shown
from qualityhub.engine.errors import UnreadablePackageError

Function = ast.FunctionDef | ast.AsyncFunctionDef


def parse_python(source: str, place: str) -> ast.Module:
    """Return the syntax tree of a module.

    Raises:
        UnreadablePackageError: ``package.bad_python``, naming file and line.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source, filename=shown(place))
    except SyntaxError as error:
        raise _bad(f"{place}:{error.lineno or 1}", error.msg) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise _bad(place, str(error) or "nested too deep") from error


def functions(module: ast.Module) -> dict[str, Function]:
    """Return the functions a module defines at its top level, also within ``if`` and ``try``."""
    return {node.name: node for node in _top_level(module.body) if isinstance(node, Function)}


def classes(module: ast.Module) -> dict[str, ast.ClassDef]:
    """Return the classes a module defines at its top level, also within ``if`` and ``try``."""
    return {node.name: node for node in _top_level(module.body) if isinstance(node, ast.ClassDef)}


def top_level_names(module: ast.Module) -> set[str]:
    """Return every name a module binds at its top level, imports and assignments included."""
    names: set[str] = set()
    for node in _top_level(module.body):
        if isinstance(node, (Function, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update((item.asname or item.name).split(".")[0] for item in node.names)
        elif isinstance(node, ast.Assign):
            names.update(
                part.id
                for target in node.targets
                for part in ast.walk(target)
                if isinstance(part, ast.Name)
            )
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


@dataclass(frozen=True, slots=True)
class Signature:
    """What may be passed to a function.

    Attributes:
        positional: Names that take positional arguments, without defaults first.
        required: How many of them have no default.
        keywords: Keyword-only names.
        required_keywords: Those without default.
        any_positional: Has ``*args``.
        any_keyword: Has ``**kwargs``.
    """

    positional: tuple[str, ...]
    required: int
    keywords: tuple[str, ...]
    required_keywords: tuple[str, ...]
    any_positional: bool
    any_keyword: bool


def signature(function: Function) -> Signature:
    """Return a function's signature."""
    args = function.args
    positional = tuple(arg.arg for arg in (*args.posonlyargs, *args.args))
    return Signature(
        positional=positional,
        required=len(positional) - len(args.defaults),
        keywords=tuple(arg.arg for arg in args.kwonlyargs),
        required_keywords=tuple(
            arg.arg
            for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)
            if default is None
        ),
        any_positional=args.vararg is not None,
        any_keyword=args.kwarg is not None,
    )


def methods(node: ast.ClassDef, known: dict[str, ast.ClassDef]) -> tuple[dict[str, Function], bool]:
    """Return the methods of a class with those it inherits within the module.

    Returns:
        Methods by name, and whether a base comes from elsewhere, so that there may be more.
    """
    found: dict[str, Function] = {}
    foreign = False
    waiting, seen = [node], {node.name}
    while waiting:
        current = waiting.pop(0)
        for item in _top_level(current.body):
            if isinstance(item, Function):
                found.setdefault(item.name, item)
        for base in current.bases:
            inner = known.get(base.id) if isinstance(base, ast.Name) else None
            if inner is None:
                foreign = foreign or not (isinstance(base, ast.Name) and base.id == "object")
            elif inner.name not in seen:
                seen.add(inner.name)
                waiting.append(inner)
    return found, foreign


def _top_level(body: list[ast.stmt]) -> list[ast.stmt]:
    result: list[ast.stmt] = []
    waiting = list(reversed(body))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If):
            waiting.extend(reversed([*node.body, *node.orelse]))
        elif isinstance(node, (ast.Try, ast.TryStar)):
            handlers = [item for handler in node.handlers for item in handler.body]
            waiting.extend(reversed([*node.body, *handlers, *node.orelse, *node.finalbody]))
        elif isinstance(node, ast.With):
            waiting.extend(reversed(node.body))
        else:
            result.append(node)
    return result


def _bad(place: str, why: str) -> UnreadablePackageError:
    return UnreadablePackageError(
        "package.bad_python", f"{shown(place)} is not valid Python: {why}.", "Correct the file."
    )
