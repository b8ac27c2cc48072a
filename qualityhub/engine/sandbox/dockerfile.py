"""Read a Dockerfile far enough to rehearse it without a container engine.

What is understood: one stage from a Python, Debian or Ubuntu image, WORKDIR, COPY and local ADD,
ENV and ARG, ``RUN pip install``, ``RUN mkdir`` and ``chmod``, and what only matters when a
container starts. Everything else is listed as unsupported, by its text: then nothing is rehearsed.
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from qualityhub.engine.sandbox.buildcontext import BuildContext, ContextError
from qualityhub.engine.sandbox.pip_commands import PipCommand, read_pip

_IGNORED = frozenset({"CMD", "ENTRYPOINT", "EXPOSE", "LABEL", "MAINTAINER", "HEALTHCHECK"})
_IGNORED_TOO = frozenset({"STOPSIGNAL", "SHELL"})
_BASES = re.compile(
    r"^(?:docker\.io/)?(?:library/)?(python|debian|ubuntu)(?::([\w.-]+))?(?:@sha256:[0-9a-f]{64})?$"
)
_VERSION = re.compile(r"^\d+(?:\.\d+){0,2}")
_VARIABLE = re.compile(r"\\\$|\$(?:(\w+)|\{(\w+)(?::([-+])([^}]*))?\})")
_HEREDOC = re.compile(r"<<-?\s*['\"]?\w+")
_HOST_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_BUILT_IN = {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "TARGETPLATFORM", "TARGETARCH", "TARGETOS"}


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """One file or link that the image gets from its build context.

    Attributes:
        source: Relative to the context.
        target: Absolute path in the image.
        mode: Permission bits to set, or None for those of the source.
    """

    source: str
    target: str
    mode: int | None = None


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What a Dockerfile asks for, as far as it can be rehearsed.

    Attributes:
        image: Of the FROM line.
        python: Version in the image's tag, e.g. ``3.12``; empty where the image brings none.
        workdir: Last WORKDIR.
        env: ENV, in order.
        copies: Files from the context, later ones win.
        folders: Folders made by WORKDIR and ``mkdir``.
        modes: Permission bits changed by ``chmod``: ``+x`` as None, octal as a number.
        pip_requirements: Of every ``pip install``, in order, each once.
        user: Last USER; always root where ``unsupported`` is empty.
        unsupported: Instructions that need a real build, by their text.
        errors: What no engine could build: the environment's own fault.
    """

    image: str = ""
    python: str = ""
    workdir: str = "/"
    env: dict[str, str] = field(default_factory=dict)
    copies: tuple[CopiedFile, ...] = ()
    folders: tuple[str, ...] = ()
    modes: tuple[tuple[str, int | None], ...] = ()
    pip_requirements: tuple[str, ...] = ()
    user: str = "root"
    unsupported: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


def read_dockerfile(text: str, context: Path) -> Rehearsal:
    """Return what a Dockerfile asks for.

    Args:
        text: The Dockerfile.
        context: Folder that COPY reads from; links in it are never followed.
    """
    reader = _Reader(BuildContext(context))
    for keyword, rest in instructions(text):
        reader.take(keyword, rest)
    return reader.result()


def instructions(text: str) -> list[tuple[str, str]]:
    """Return keyword and argument of every instruction; comments and continuations resolved."""
    escape = "\\"
    directive = re.match(r"\s*#\s*escape\s*=\s*(\S)", text)
    if directive:
        escape = directive[1]
    pairs = []
    for whole in _logical_lines(text, escape):
        keyword, _, rest = whole.partition(" ")
        pairs.append((keyword.upper(), rest.strip()))
    return pairs


def expand_variables(text: str, known: Mapping[str, str]) -> str:
    """Return a line with its variables replaced; unknown ones are empty."""

    def value(match: re.Match[str]) -> str:
        if match[0] == "\\$":
            return "$"
        name = match[1] or match[2]
        seen = known.get(name, "")
        if match[3] == "-":
            return seen or match[4]
        if match[3] == "+":
            return match[4] if seen else ""
        return seen

    return _VARIABLE.sub(value, text)


def _logical_lines(text: str, escape: str) -> Iterator[str]:
    """Yield lines with their continuations, without comments and the bodies of here-documents."""
    waiting = ""
    ends: list[str] = []
    for line in text.splitlines():
        if ends:
            if line.strip() == ends[0]:
                ends.pop(0)
            continue
        bare = line.strip()
        if bare.startswith("#") or (waiting and not bare):
            continue
        if bare.endswith(escape):
            waiting += bare[:-1] + " "
            continue
        whole = (waiting + bare).strip()
        waiting = ""
        if whole:
            yield whole
            if whole.split()[0].upper() in {"RUN", "COPY", "ADD"}:
                ends = re.findall(r"<<-?\s*['\"]?(\w+)", whole)
    if waiting.strip():
        yield waiting.strip()


class _Reader:
    """State while the instructions go by."""

    def __init__(self, context: BuildContext) -> None:
        self._context = context
        self._image = self._python = ""
        self._stages = 0
        self._workdir = "/"
        self._user = "root"
        self._args: dict[str, str] = {}
        self._env: dict[str, str] = {}
        self._copies: dict[str, CopiedFile] = {}
        self._folders: dict[str, None] = {}
        self._modes: list[tuple[str, int | None]] = []
        self._requirements: dict[str, None] = {}
        self._unsupported: list[str] = []
        self._errors: list[str] = []

    def take(self, keyword: str, rest: str) -> None:
        if keyword in _IGNORED or keyword in _IGNORED_TOO:
            return
        handler = getattr(self, f"_on_{keyword.lower()}", None)
        if handler is None or (not self._stages and keyword not in {"FROM", "ARG"}):
            self._refuse(keyword, rest)
            return
        if keyword in {"RUN", "COPY", "ADD"} and _HEREDOC.search(rest):
            self._refuse(keyword, rest)
            return
        try:
            handler(rest)
        except ContextError as error:
            self._errors.append(f"{keyword} {rest}: {error}")
        except ValueError:
            self._refuse(keyword, rest)

    def result(self) -> Rehearsal:
        if not self._stages and not self._unsupported:
            self._errors.append("the Dockerfile has no FROM")
        return Rehearsal(
            image=self._image,
            python=self._python,
            workdir=self._workdir,
            env=dict(self._env),
            copies=tuple(self._copies.values()),
            folders=tuple(self._folders),
            modes=tuple(self._modes),
            pip_requirements=tuple(self._requirements),
            user=self._user,
            unsupported=tuple(self._unsupported),
            errors=tuple(self._errors),
        )

    def _refuse(self, keyword: str, rest: str) -> None:
        text = re.sub(r"\s+", " ", f"{keyword} {rest}").strip()
        self._unsupported.append(text if len(text) <= 200 else text[:199] + "…")

    def _on_from(self, rest: str) -> None:
        words = [word for word in self._expand(rest).split() if not word.startswith("--")]
        if not words:
            raise ValueError("FROM without an image")
        self._stages += 1
        if self._stages > 1:
            self._unsupported.append(f"FROM {rest} (a second stage)")
            return
        self._image = words[0]
        self._args = {}
        match = _BASES.match(words[0])
        tag = (match[2] or "") if match else ""
        if match is None or "alpine" in tag or "windows" in tag:
            self._unsupported.append(f"FROM {words[0]} (needs image {words[0]})")
            return
        if match[1] == "python":
            version = _VERSION.match(tag)
            self._python = version[0] if version else "3"

    def _on_arg(self, rest: str) -> None:
        for word in shlex.split(rest):
            name, equals, value = word.partition("=")
            if equals:
                self._args.setdefault(name, self._expand(value))
            elif name not in _BUILT_IN:
                self._args.setdefault(name, "")

    def _on_env(self, rest: str) -> None:
        words = shlex.split(rest)
        if words and "=" not in words[0]:
            name, _, value = rest.partition(" ")
            self._env[name] = self._expand(value.strip())
            return
        new = {}
        for word in words:
            name, equals, value = word.partition("=")
            if not equals or not name:
                raise ValueError("ENV without a value")
            new[name] = self._expand(value)
        self._env.update(new)

    def _on_workdir(self, rest: str) -> None:
        self._workdir = self._absolute(self._expand(rest.strip("\"'")))
        self._folders[self._workdir] = None

    def _on_user(self, rest: str) -> None:
        self._user = self._expand(rest).strip()
        if self._user.split(":")[0] not in {"root", "0"}:
            raise ValueError("another user")

    def _on_volume(self, rest: str) -> None:
        words = json.loads(rest) if rest.startswith("[") else rest.split()
        for word in words:
            self._folders[self._absolute(self._expand(str(word)))] = None

    def _on_copy(self, rest: str) -> None:
        self._copy(rest)

    def _on_add(self, rest: str) -> None:
        self._copy(rest, add=True)

    def _copy(self, rest: str, *, add: bool = False) -> None:
        options, words = _flags(rest)
        mode = _mode(options)
        if len(words) < 2:
            raise ValueError("COPY needs a source and a target")
        words = [self._expand(word) for word in words]
        sources, target = words[:-1], words[-1]
        if add and any("://" in item or "git@" in item or ".tar" in item for item in sources):
            raise ValueError("ADD of an address or an archive")
        absolute = self._absolute(target)
        if _is_host_folder(absolute):
            raise ValueError("the base is read-only there")
        into = target.endswith("/") or target in {".", ".."} or absolute in self._known_folders()
        matched = [path for item in sources for path in self._context.match(item)]
        for path in matched:
            if self._context.is_folder(path):
                self._folders[absolute] = None
                for file in self._context.below(path):
                    relative = PurePosixPath(file).relative_to(path or ".")
                    self._put(file, posixpath.join(absolute, str(relative)), mode)
            elif into or len(matched) > 1:
                self._put(path, posixpath.join(absolute, PurePosixPath(path).name), mode)
            else:
                self._put(path, absolute, mode)

    def _put(self, source: str, target: str, mode: int | None) -> None:
        self._copies.pop(target, None)
        self._copies[target] = CopiedFile(source, target, mode)

    def _known_folders(self) -> set[str]:
        known = {"/", "/root", "/tmp", "/home", "/opt", "/srv", "/mnt", "/etc", "/var"}  # noqa: S108
        for path in (*self._folders, *(posixpath.dirname(target) for target in self._copies)):
            known.update((path, *(str(parent) for parent in PurePosixPath(path).parents)))
        return known

    def _on_run(self, rest: str) -> None:
        rest = re.sub(r"^(?:--mount=type=cache\S*\s+)+", "", rest)
        if rest.startswith("--"):
            raise ValueError("RUN with an option")
        # All or nothing: a line that is half understood is not understood.
        for step in [self._step(words) for words in _commands(rest)]:
            if isinstance(step, PipCommand):
                lines = [line for name in step.files for line in self._requirement_lines(name)]
                self._requirements.update(dict.fromkeys([*lines, *step.requirements]))
            elif isinstance(step, dict):
                self._folders.update(step)
            elif isinstance(step, list):
                self._modes += step

    def _step(
        self, words: list[str]
    ) -> PipCommand | dict[str, None] | list[tuple[str, int | None]] | None:
        words = [self._expand(word) for word in words]
        if not words or words[0] in {"true", ":", "set", "echo"}:
            return None
        if words[0] == "mkdir":
            paths = [word for word in words[1:] if not word.startswith("-")]
            targets = [self._absolute(path) for path in paths]
            if any(_is_host_folder(target) for target in targets):
                raise ValueError("the base is read-only there")
            return dict.fromkeys(targets)
        if words[0] == "chmod" and len(words) > 2:
            paths = [self._absolute(word) for word in words[2:]]
            if words[1] in {"+x", "a+x", "u+x"}:
                bits: int | None = None
            else:
                bits = int(words[1], 8)
            if any(path not in self._copies for path in paths):
                raise ValueError("chmod of something that was not copied")
            return [(path, bits) for path in paths]
        return read_pip(words)

    def _requirement_lines(self, name: str) -> list[str]:
        target = self._absolute(name)
        copied = self._copies.get(target)
        if copied is None:
            raise ContextError(f"{name} was not copied into the image before")
        lines: list[str] = []
        text = self._context.text(copied.source).replace("\\\n", " ")
        for raw in text.splitlines():
            line = re.sub(r"(^|\s)#.*$", "", raw).strip()
            if not line:
                continue
            if line.startswith(("-r", "--requirement")):
                nested = line.split(maxsplit=1)[1].lstrip("=")
                lines += self._requirement_lines(posixpath.join(posixpath.dirname(target), nested))
            elif line.startswith("-"):
                raise ValueError("an option in a requirements file")
            else:
                # Hashes are checked against the index by our own lock.
                lines.append(re.sub(r"\s+--hash=\S+", "", line).strip())
        return lines

    def _absolute(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self._workdir, path))

    def _expand(self, text: str) -> str:
        return expand_variables(text, {**self._args, **self._env})


def _flags(rest: str) -> tuple[dict[str, str], list[str]]:
    options: dict[str, str] = {}
    while rest.startswith("--"):
        word, _, rest = rest.partition(" ")
        name, _, value = word.partition("=")
        options[name] = value
        rest = rest.strip()
    words = json.loads(rest) if rest.startswith("[") else shlex.split(rest)
    if not all(isinstance(word, str) for word in words):
        raise ValueError("not a list of words")
    return options, words


def _mode(options: dict[str, str]) -> int | None:
    """Return what ``--chmod`` says; every other option must change nothing."""
    mode = None
    for name, value in options.items():
        if name == "--chmod":
            mode = int(value, 8)
        elif name == "--chown":
            if value.split(":")[0] not in {"root", "0"}:
                raise ValueError("another owner")
        elif name != "--link":
            raise ValueError(name)
    return mode


def _is_host_folder(path: str) -> bool:
    return any(path == top or path.startswith(top + "/") for top in _HOST_FOLDERS)


def _commands(rest: str) -> list[list[str]]:
    if not rest.startswith("["):
        return _simple_commands(rest)
    words = json.loads(rest)
    if not all(isinstance(word, str) for word in words):
        raise ValueError("not a list of words")
    if words[:1] and PurePosixPath(words[0]).name in {"sh", "bash"}:
        raise ValueError("a shell line")
    return [words]


def _simple_commands(line: str) -> list[list[str]]:
    """Split a shell line at ``&&`` and ``;``.

    Raises:
        ValueError: It has a pipe, a redirection, a substitution or another operator.
    """
    if "`" in line or "$(" in line:
        raise ValueError("a substitution")
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|<>()")
    lexer.whitespace_split = True
    # Requirements such as "numpy>=2" are quoted in a real shell; unquoted they redirect.
    commands: list[list[str]] = [[]]
    for word in lexer:
        if word in {"&&", ";"}:
            commands.append([])
        elif word and set(word) <= set(";&|<>()"):
            raise ValueError("an operator")
        else:
            commands[-1].append(word)
    return [command for command in commands if command]
