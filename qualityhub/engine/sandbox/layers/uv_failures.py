"""Read uv's words: whose fault a failed step is, and one sentence that says so."""

from __future__ import annotations

import re
import shutil

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from qualityhub.engine.sandbox.layers.model import LayerFailed, LayerUnavailable, Package, same_name
from qualityhub.engine.sandbox.layers.workbench import LIMITS, PATH, log_of
from qualityhub.engine.sandbox.port import MIB, Completed

_UNREACHABLE = (
    "error sending request",
    "dns error",
    "tcp connect error",
    "connection refused",
    "connection reset",
    "operation timed out",
    "network unreachable",
    "client error (connect)",
    "http status server error",
    "because the network was disabled",
    "invalid peer certificate",
    "401 unauthorized",
    "403 forbidden",
    "407 proxy",
    "429 too many",
)
_BROKEN_INDEX = ("failed to fetch", "failed to open file")
# Said by uv of what an environment asked for; a name in it may say anything, so these win.
_AT_FAULT = ("no solution found", "not found in the package registry", "included as a url")
_NO_WHEEL = re.compile(
    r"wheels are required for `([A-Za-z0-9._-]+)` because building", re.IGNORECASE
)
_VERDICT = re.compile(r"^error: Failed to build ", re.MULTILINE)
_UNDECLARED = re.compile(r"Because (\S+) was not found in the provided package locations")
# Tools that builds call. Where a build says that one is not there, it is looked up: what a build
# says is only a claim.
_TOOLS = (
    *("gcc", "cc", "clang", "g++", "c++", "clang++", "gfortran", "nvcc", "cargo", "rustc", "go"),
    *("cmake", "make", "ninja", "meson", "swig", "bison", "flex", "protoc", "pkg-config", "git"),
    *("autoconf", "automake", "libtool", "patch", "javac"),
)
_NAMED = "(?:[a-z0-9_]+-linux-[a-z]+-)?(" + "|".join(map(re.escape, _TOOLS)) + ")"
_MISSING = tuple(
    re.compile(pattern.replace("TOOL", _NAMED))
    for pattern in (
        r"command '?(?:\S*/)?TOOL'? failed: no such file",
        r"(?:no such file or directory|unable to execute|not find program):? '?TOOL(?![\w./+-])",
        r"(?<![\w./+-])TOOL'?: (?:command )?not found",
    )
)
_SIGNS = (
    (re.compile(r"unknown compiler\(s\)|no acceptable c compiler|no cmake_c_compiler"), "cc"),
    (re.compile(r"no cmake_cxx_compiler"), "c++"),
    (re.compile(r"no cmake_fortran_compiler|no fortran compiler"), "gfortran"),
    (re.compile(r"can't find rust compiler|cargo, the rust package manager, is not"), "cargo"),
    (re.compile(r"cmake must be installed|could not find cmake"), "cmake"),
)


def sources_wanted(seen: Completed) -> tuple[str, ...]:
    """Return the packages that uv would have to build, had it been allowed to."""
    return tuple(dict.fromkeys(canonicalize_name(name) for name in _NO_WHEEL.findall(_flat(seen))))


def not_resolved(seen: Completed, requirements: tuple[str, ...]) -> LayerFailed | LayerUnavailable:
    """Say whose fault it is that requirements did not resolve."""
    log = log_of(seen)
    exhausted = _exhausted(seen, "resolve", log)
    if exhausted is not None:
        return exhausted
    if _mentions(seen, _UNREACHABLE) and not _mentions(seen, _AT_FAULT):
        return unreachable(log)
    if _mentions(seen, _BROKEN_INDEX) and not _mentions(seen, _AT_FAULT):
        return LayerUnavailable(
            f"the package index does not give what its pages name: {_sentence(log)}",
            "a complete package index",
            log,
        )
    return LayerFailed(
        f"the declared dependencies do not resolve: {_sentence(log)}",
        log,
        at_fault(log, requirements),
    )


def not_installed(seen: Completed, requirements: tuple[str, ...]) -> LayerFailed | LayerUnavailable:
    """Say whose fault it is that locked packages did not install."""
    log = log_of(seen)
    return _exhausted(seen, "install", log) or LayerFailed(
        f"the declared dependencies do not install: {_sentence(log)}",
        log,
        at_fault(log, requirements),
    )


def not_built(
    seen: Completed, package: Package, requirements: tuple[str, ...]
) -> LayerFailed | LayerUnavailable:
    """Say whose fault it is that a source distribution did not build."""
    log = log_of(seen)
    exhausted = _exhausted(seen, f"build ({package})", log)
    if exhausted is not None:
        return exhausted
    said, words = _parted(log)
    tool = _missing_tool(said)
    if tool:
        return LayerUnavailable(
            f"{package} has no wheel for this platform, and this host has no {tool} to build it",
            f"{tool} on this host, or a wheel of {package} in the package index",
            log,
        )
    undeclared = _UNDECLARED.search(words)
    if undeclared is not None:
        why = f"its build asks for {undeclared[1]}, which its pyproject.toml does not declare"
    else:
        why = _last_line(said) or _sentence(words)
    return build_failed(package, why, log, requirements)


def build_failed(
    package: Package, why: str, log: str, requirements: tuple[str, ...]
) -> LayerFailed:
    """Return the finding that a source distribution cannot be used."""
    named = [text for text in requirements if same_name(Requirement(text).name, package.name)]
    if not named and len(requirements) == 1:
        named = [requirements[0]]
    return LayerFailed(
        "the declared dependencies do not build: "
        f"{package} has no wheel for this platform, and its source distribution fails: {why}",
        log,
        named[0] if named else "",
    )


def unreachable(log: str) -> LayerUnavailable:
    """Return that no index answers."""
    return LayerUnavailable(
        "no package index reachable",
        "a package index (UV_DEFAULT_INDEX or PIP_INDEX_URL name another one)",
        log,
    )


def at_fault(log: str, requirements: tuple[str, ...]) -> str:
    """Return the declared requirement that uv's explanation names first."""
    named = {canonicalize_name(Requirement(text).name): text for text in requirements}
    for word in re.findall(r"[A-Za-z0-9][A-Za-z0-9._-]*", log):
        found = named.get(canonicalize_name(word.rstrip(".")))
        if found is not None:
            return found
    return ""


def _exhausted(seen: Completed, step: str, log: str) -> LayerUnavailable | None:
    if seen.timed_out:
        return LayerUnavailable(
            f"dependencies did not {step} within {LIMITS.wall_s:.0f} s",
            "a faster package index or host",
            log,
        )
    if seen.out_of_memory:
        return LayerUnavailable(
            f"dependencies needed more memory to {step} than a build sandbox may use",
            f"more than {LIMITS.memory_bytes // MIB} MiB for builds",
            log,
        )
    return None


def _missing_tool(said: str) -> str:
    text = re.sub(r"\s+", " ", said.lower())
    claimed = [match[1] for pattern in _MISSING for match in pattern.finditer(text)]
    claimed += [tool for pattern, tool in _SIGNS if pattern.search(text)]
    path = ":".join(PATH)
    return next((tool for tool in claimed if shutil.which(tool, path=path) is None), "")


def _parted(log: str) -> tuple[str, str]:
    """Return what a build said, and what uv said of it in the end."""
    found = list(_VERDICT.finditer(log))
    if not found:
        return log, log
    return log[: found[-1].start()], log[found[-1].start() :]


def _last_line(text: str) -> str:
    lines = [_printable(line).strip() for line in text.splitlines()]
    useful = [line for line in lines if line and not line.startswith("Building wheel from")]
    return useful[-1][:300] if useful else ""


def _mentions(seen: Completed, signs: tuple[str, ...]) -> bool:
    text = _flat(seen)
    return any(sign in text for sign in signs)


def _flat(seen: Completed) -> str:
    return re.sub(r"\s+", " ", seen.stderr.decode(errors="replace").lower())


def _printable(text: str) -> str:
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    return "".join(sign if sign.isprintable() else " " for sign in text)


def _sentence(log: str) -> str:
    """Return uv's own explanation as one line, without its drawing."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", log)
    lines = [
        re.sub(r"^\W+|^(?:error|cause):\s*", "", _printable(line).strip()).strip()
        for line in text.splitlines()
    ]
    useful = [line for line in lines if line and not line.startswith(("hint:", "warning:"))]
    return re.sub(r"\s+", " ", " ".join(useful))[:400] or "uv gave no reason"
