"""Which libraries an environment's own files import before anything they do has an effect.

A library that is imported once for many trials is imported before the environment's files run. That
is the order of a cold trial only as long as those files do nothing but import and define: a
variable, a path, a filter for warnings or a patch that they set changes what is imported after it.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from qualityhub.engine.environments.python_source import parse_python
from qualityhub.engine.errors import QualityHubError

_MOST_FILES = 200
_MOST_NESTED = 20
_MOST_BYTES = 2 * 1024 * 1024
_GUARDS = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
# Decorators of the language; any other is a call of something that was imported or written here.
_DECORATORS = frozenset({"property", "staticmethod", "classmethod"})
_NAMES = frozenset({"__all__", "__author__", "__license__", "__slots__", "__version__"})
# What a class statement, an expression or an import calls without a call being written.
_CALLED = frozenset(
    {
        "__class_getitem__",
        "__getattr__",
        "__init_subclass__",
        "__mro_entries__",
        "__prepare__",
        "__set_name__",
    }
)
# Parts of expressions that call nothing of the environment's.
_PLAIN = (
    ast.Constant,
    ast.Name,
    ast.Attribute,
    ast.Subscript,
    ast.Slice,
    ast.Tuple,
    ast.List,
    ast.Set,
    ast.Dict,
    ast.UnaryOp,
    ast.BinOp,
    ast.expr_context,
    ast.operator,
    ast.unaryop,
)


class _EffectError(Exception):
    """From here on, what is imported may depend on what ran before it."""


def imported_first(root: Path, first: str) -> tuple[str, ...]:
    """Return the libraries that a file imports before it has an effect, in their order.

    The environment's own modules are followed and not named. What may be missing is left out.

    Args:
        root: The environment's folder; its files are read and never loaded.
        first: The file that is loaded, below it.
    """
    reader = _Reader(root, PurePosixPath(first))
    with contextlib.suppress(_EffectError):
        reader.read(PurePosixPath(first))
    return tuple(reader.found)


class _Reader:
    """Goes through files as their import would, until the first statement with an effect."""

    def __init__(self, root: Path, first: PurePosixPath) -> None:
        self.found: dict[str, None] = {}
        self._root = root
        self._real = root.resolve()
        # As the program puts them on the path.
        self._folders = dict.fromkeys((first.parent, PurePosixPath()))
        self._seen: set[PurePosixPath] = set()
        self._nested = 0

    def read(self, inner: PurePosixPath) -> None:
        """Go through one file, once."""
        if inner in self._seen:
            return
        self._seen.add(inner)
        path = self._root / inner
        if len(self._seen) > _MOST_FILES or self._nested >= _MOST_NESTED:
            raise _EffectError
        try:
            if not path.resolve().is_relative_to(self._real) or path.stat().st_size > _MOST_BYTES:
                raise _EffectError
            module = parse_python(path.read_text(encoding="utf-8"), inner.as_posix())
        except (OSError, ValueError, RuntimeError, QualityHubError) as error:
            raise _EffectError from error
        self._nested += 1
        self._go(module.body, inner.parent, needed=True)
        self._nested -= 1

    def _go(self, body: Iterable[ast.stmt], folder: PurePosixPath, *, needed: bool) -> None:
        for node in body:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._import(alias.name, (), needed=needed)
            elif isinstance(node, ast.ImportFrom):
                self._import_from(node, folder, needed=needed)
            elif isinstance(node, ast.Try) and _is_guard(node):
                parts = (node.body, *(handler.body for handler in node.handlers), node.orelse)
                for part in (*parts, node.finalbody):
                    self._go(part, folder, needed=False)
            elif isinstance(node, ast.If) and _named(node.test) == "TYPE_CHECKING":
                self._go(node.orelse, folder, needed=needed)
            elif not _defines(node):
                raise _EffectError

    def _import(self, name: str, members: Iterable[str], *, needed: bool) -> None:
        parts = name.split(".")
        folder = self._owner(parts[0])
        if folder is not None:
            self._own(folder, parts, members)
        elif needed and name != "__future__":
            self.found[parts[0]] = None

    def _import_from(self, node: ast.ImportFrom, folder: PurePosixPath, *, needed: bool) -> None:
        members = [alias.name for alias in node.names]
        if node.level == 0:
            self._import(node.module or "", members, needed=needed)
            return
        for _ in range(node.level - 1):
            if folder == PurePosixPath():
                raise _EffectError
            folder = folder.parent
        self._own(folder, node.module.split(".") if node.module else [], members)

    def _owner(self, name: str) -> PurePosixPath | None:
        """Return the folder of the path that a module of the environment is found in."""
        for folder in self._folders:
            try:
                names = {item.name.partition(".")[0] for item in (self._root / folder).iterdir()}
            except OSError as error:
                raise _EffectError from error
            if name in names:
                return folder
        return None

    def _own(self, folder: PurePosixPath, parts: list[str], members: Iterable[str]) -> None:
        """Go through what an import of one of the environment's modules runs."""
        for part in parts:
            folder /= part
            package = folder / "__init__.py"
            if self._has(package):
                self.read(package)
            elif self._has(folder.with_suffix(".py")):
                if part is not parts[-1]:
                    raise _EffectError
                self.read(folder.with_suffix(".py"))
                return
            else:
                # A folder without a file of its own may give way to a library of that name.
                raise _EffectError
        for member in members:
            inner = folder / member
            if member == "*":
                raise _EffectError
            if self._has(inner / "__init__.py"):
                self.read(inner / "__init__.py")
            elif self._has(inner.with_suffix(".py")):
                self.read(inner.with_suffix(".py"))
            elif (self._root / inner).is_dir():
                raise _EffectError

    def _has(self, inner: PurePosixPath) -> bool:
        return (self._root / inner).is_file()


def _is_guard(node: ast.Try) -> bool:
    """Whether it only bears that a module is missing."""
    return bool(node.handlers) and all(
        handler.type is None
        or (
            all(_named(item) in _GUARDS for item in handler.type.elts)
            if isinstance(handler.type, ast.Tuple)
            else _named(handler.type) in _GUARDS
        )
        for handler in node.handlers
    )


def _defines(node: ast.stmt) -> bool:
    """Whether a statement binds names and does nothing else."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Assign):
        return _is_plain(node.value) and all(map(_is_plain_target, node.targets))
    if isinstance(node, ast.AnnAssign):
        return _is_plain_target(node.target) and _is_plain(node.annotation, node.value)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return _defines_function(node)
    return isinstance(node, ast.Pass) or (isinstance(node, ast.ClassDef) and _defines_class(node))


def _defines_function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    args = node.args
    every = [*args.posonlyargs, *args.args, *args.kwonlyargs]
    every += [item for item in (args.vararg, args.kwarg) if item is not None]
    return (
        node.name not in _CALLED
        and all(_named(item) in _DECORATORS for item in node.decorator_list)
        and _is_plain(*args.defaults, *args.kw_defaults, node.returns)
        and _is_plain(*(item.annotation for item in every))
    )


def _defines_class(node: ast.ClassDef) -> bool:
    return (
        not node.decorator_list
        and not node.keywords
        and _is_plain(*node.bases)
        and all(map(_defines, node.body))
    )


def _is_plain(*values: ast.expr | None) -> bool:
    """Whether evaluating them calls nothing that was written here."""
    given = (value for value in values if value is not None)
    return all(isinstance(part, _PLAIN) for value in given for part in ast.walk(value))


def _is_plain_target(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) and (target.id in _NAMES or target.id[:2] != "__")


def _named(node: ast.expr | None) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""
