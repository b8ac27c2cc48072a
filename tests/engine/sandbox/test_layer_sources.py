"""Packages without a wheel: what builds, what is refused, and what a hostile build cannot do."""

from __future__ import annotations

import re
import socket
import threading
import time
from pathlib import Path

import pytest

from qualityhub.engine.sandbox.interpreters import default_interpreter
from qualityhub.engine.sandbox.layers import (
    TARGET,
    Layer,
    LayerFailed,
    LayerUnavailable,
    build_layer,
    uv_failures,
)
from qualityhub.engine.sandbox.layers.model import Package
from qualityhub.engine.sandbox.port import Command, Completed, Mount


@pytest.fixture
def make(bwrap, tmp_path, packages, index):
    """Build a layer from the test's index."""

    def make(*requirements, home="home", **options):
        return build_layer(requirements, default_interpreter(), tmp_path / home, bwrap, **options)

    return make


@pytest.fixture
def value(bwrap):
    """Return what a module of a layer has as VALUE."""

    def value(layer, module):
        assert isinstance(layer, Layer), layer
        seen = bwrap.run(
            Command(
                argv=(f"{TARGET}/bin/python", "-c", f"import {module}; print({module}.VALUE)"),
                mounts=(Mount(TARGET, layer.path),),
            )
        )
        assert seen.exit_code == 0, seen.stderr
        return seen.stdout.decode().strip()

    return value


@pytest.fixture
def listener():
    """A server on this host that counts who comes."""
    seen = []
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(0.2)
    over = threading.Event()

    def serve():
        while not over.is_set():
            try:
                connection, _ = server.accept()
            except TimeoutError:
                continue
            seen.append(connection)
            connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    yield server.getsockname()[1], seen
    over.set()
    thread.join()
    server.close()


def test_uv_picks_the_version_and_a_build_says_what_it_needs(make, value, packages, index):
    index.wheel(packages, "alpha", "1.0", requires=("gamma>=1,<2",))
    index.wheel(packages, "beta", "1.0")
    for version in ("0.5", "1.0", "1.5", "2.0"):
        needs = ("beta",) if version == "1.5" else ()
        program = index.backend("gamma", version, before=f"VALUE = {version!r}", requires=needs)
        index.sdist(packages, "gamma", version, setup=program)
    layer = make("alpha")
    assert value(layer, "gamma") == "1.5"
    assert layer.lock == ("alpha==1.0", "beta==1.0", "gamma==1.5")


def test_a_version_with_static_metadata_is_passed_over_without_running_it(make, packages, index):
    static = (
        "Metadata-Version: 2.2\nName: gamma\nVersion: 2.0\nRequires-Dist: none-such\n"
        "Dynamic: License\n"
    )
    index.sdist(packages, "gamma", "2.0", setup="raise SystemExit('ran')", pkg_info=static)
    index.sdist(packages, "gamma", "1.0", setup=index.backend("gamma", "1.0"))
    layer = make("gamma")
    assert isinstance(layer, Layer), layer
    assert layer.lock == ("gamma==1.0",)


def test_metadata_that_calls_its_dependencies_dynamic_is_not_believed(make, packages, index):
    claimed = (
        "Metadata-Version: 2.2\nName: gamma\nVersion: 1.0\nDynamic: Requires-Dist\n"
        "Requires-Dist: none-such\n"
    )
    index.sdist(packages, "gamma", "1.0", setup=index.backend("gamma", "1.0"), pkg_info=claimed)
    assert isinstance(make("gamma"), Layer)


def test_build_requirements_are_there_as_wheels(make, value, packages, index):
    index.wheel(packages, "tool", "1.0", source="ANSWER = 7\n", requires=("helper",))
    index.wheel(packages, "helper", "1.0")
    program = index.backend("gamma", "1.0", before="import helper, tool\nVALUE = tool.ANSWER")
    index.sdist(packages, "gamma", "1.0", setup=program, build_requires=("tool>=1",))
    layer = make("gamma")
    assert value(layer, "gamma") == "7"
    assert layer.lock == ("gamma==1.0",)


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ("tool @ https://127.0.0.1:9/tool-1.0-py3-none-any.whl", "names a place"),
        ("no requirement at all", "is none"),
        ("none-such", "none-such was not found"),
        ("delta", "delta"),
    ],
)
def test_build_requirements_come_from_the_index_as_wheels_or_not_at_all(
    make, packages, index, asked, named
):
    index.sdist(packages, "delta", "1.0", setup=index.backend("delta", "1.0"))
    index.sdist(
        packages, "gamma", "1.0", setup=index.backend("gamma", "1.0"), build_requires=(asked,)
    )
    seen = make("gamma")
    assert isinstance(seen, LayerFailed), seen
    assert "gamma 1.0" in seen.reason
    assert named in seen.reason
    assert seen.requirement == "gamma"


def test_a_build_requirement_that_only_the_build_names_is_a_finding(make, packages, index):
    index.wheel(packages, "tool", "1.0")
    program = (
        "def get_requires_for_build_wheel(config_settings=None):\n    return ['tool']\n"
        + index.backend("gamma", "1.0")
    )
    index.sdist(packages, "gamma", "1.0", setup=program)
    seen = make("gamma")
    assert isinstance(seen, LayerFailed), seen
    assert "asks for tool, which its pyproject.toml does not declare" in seen.reason


def test_a_wheel_is_built_once_for_all_that_need_it(make, packages, index):
    index.sdist(packages, "gamma", "1.0", setup=index.backend("gamma", "1.0"))
    index.wheel(packages, "alpha", "1.0")
    told = []
    first = make("gamma", on_progress=told.append)
    second = make("gamma", "alpha", on_progress=told.append)
    assert isinstance(first, Layer)
    assert second.lock == ("alpha==1.0", "gamma==1.0")
    assert [line for line in told if line.startswith("building")] == [
        "building gamma 1.0 from source, without network"
    ]


def test_two_hosts_give_a_lock_the_same_identity(make, packages, index, monkeypatch, tmp_path):
    mirror = tmp_path / "mirror"
    for folder in (packages, mirror):
        index.wheel(folder, "beta", "1.0")
    program = index.backend("gamma", "1.0", before="VALUE = os.urandom(4)")
    index.sdist(packages, "gamma", "1.0", setup=program, upload_time="yesterday")
    source = next((packages / "gamma").glob("*.tar.gz"))
    first = make("gamma", "beta")
    index.sdist(mirror, "gamma", "1.0", setup=program)
    # Archives carry the time they were made: a mirror has the very same file.
    target = mirror / "gamma" / source.name
    target.write_bytes(source.read_bytes())
    index.refresh(target)
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"file://{mirror}")
    second = make("gamma", "beta", home="other")
    assert first.path != second.path
    assert (first.digest, first.identity) == (second.digest, second.identity)


# What a build tries, and what it must have seen.
READS = """
VALUE = []
for path in PATHS:
    try:
        VALUE.append(open(path).read())
    except OSError as error:
        VALUE.append(type(error).__name__)
"""


def test_no_package_runs_where_there_is_a_network(make, value, packages, index, listener):
    port, seen = listener
    tries = f"""
import socket
try:
    socket.create_connection(("127.0.0.1", {port}), timeout=2)
    VALUE = "connected"
except OSError as error:
    VALUE = type(error).__name__
"""
    index.sdist(packages, "gamma", "1.0", setup=index.backend("gamma", "1.0", before=tries))
    # Also what runs when an interpreter starts, which compiling after the installation does.
    evil = f"import socket; socket.create_connection(('127.0.0.1', {port}), timeout=2)\n"
    index.wheel(packages, "alpha", "1.0", extra={"alpha.pth": evil})
    layer = make("gamma", "alpha")
    assert value(layer, "gamma") == "ConnectionRefusedError"
    assert (next(layer.path.glob("lib/*/site-packages")) / "alpha.pth").read_text() == evil
    assert seen == []


def test_a_build_sees_no_secrets_and_no_index(make, value, packages, index, monkeypatch):
    secret = packages.parent / "secret"
    secret.write_text("top-secret")
    secret.chmod(0o644)
    monkeypatch.setenv("UV_INDEX", f"file://{packages}")
    paths = [str(secret), str(packages / "gamma" / "index.html"), "/etc/resolv.conf"]
    index.sdist(
        packages,
        "gamma",
        "1.0",
        setup=index.backend(
            "gamma",
            "1.0",
            before=READS.replace("PATHS", repr(paths)) + "VALUE.append(sorted(os.environ))",
        ),
    )
    found = value(make("gamma"), "gamma")
    assert found.count("FileNotFoundError") == 3
    assert "UV_DEFAULT_INDEX" not in found
    assert "'UV_INDEX'" not in found


def test_a_build_writes_nowhere_but_into_its_own_world(make, value, packages, index, tmp_path):
    places = [str(packages / "planted"), str(tmp_path / "planted"), "/usr/planted", "/qh/uv"]
    writes = f"""
VALUE = []
for path in {places!r}:
    try:
        open(path, "w").write("x")
    except OSError as error:
        VALUE.append(path)
"""
    index.sdist(packages, "gamma", "1.0", setup=index.backend("gamma", "1.0", before=writes))
    assert "/qh/uv" in value(make("gamma"), "gamma")
    assert not any(Path(place).exists() for place in places)


def test_a_daemon_of_a_build_dies_with_it(make, packages, index):
    mark = "4242.4242"
    forks = f"""
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        # Otherwise whoever reads the build's output waits for it, up to the wall-clock limit.
        os.closerange(0, 100)
        os.execv("/bin/sleep", ["sleep", "{mark}"])
    os._exit(0)
"""
    index.sdist(packages, "gamma", "1.0", setup=index.backend("gamma", "1.0", before=forks))
    started = time.monotonic()
    assert isinstance(make("gamma"), Layer)
    assert time.monotonic() - started < 60
    alive = [path for path in Path("/proc").glob("[0-9]*/cmdline") if mark.encode() in _bytes(path)]
    assert alive == []


def _bytes(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_build_cannot_stand_in_for_another_package(make, value, packages, index):
    forged = index.wheel_bytes("beta", "1.0", source="VALUE = 'forged'\n")
    plants = f"""
for place in (folder, "/qh/wheels", "/qh/cache", "/qh/got"):
    os.makedirs(place, exist_ok=True)
    with open(os.path.join(place, "beta-1.0-py3-none-any.whl"), "wb") as file:
        file.write({forged!r})
    os.symlink("/etc/passwd", os.path.join(place, "gamma-1.0-py3-none-linux.whl"))
"""
    index.sdist(packages, "gamma", "1.0", setup=index.backend("gamma", "1.0", before=plants))
    index.wheel(packages, "beta", "1.0", source="VALUE = 'real'\n")
    assert value(make("gamma", "beta"), "beta") == "real"
    assert value(make("beta"), "beta") == "real"


@pytest.mark.parametrize(("name", "version"), [("beta", "1.0"), ("gamma", "1.1")])
def test_a_build_must_give_what_it_says_it_is(make, packages, index, name, version):
    index.sdist(packages, "gamma", "1.0", setup=index.backend(name, version))
    seen = make("gamma")
    assert isinstance(seen, LayerFailed), seen
    assert "gamma 1.0" in seen.reason


@pytest.mark.parametrize("kind", ["wheel", "source"])
def test_a_dependency_that_names_a_place_is_refused_unvisited(
    make, packages, index, listener, kind
):
    port, seen = listener
    needs = (f"beta @ http://127.0.0.1:{port}/beta-1.0-py3-none-any.whl",)
    if kind == "wheel":
        index.wheel(packages, "gamma", "1.0", requires=needs)
    else:
        program = index.backend("gamma", "1.0", requires=needs)
        index.sdist(packages, "gamma", "1.0", setup=program)
    outcome = make("gamma")
    assert isinstance(outcome, LayerFailed), outcome
    assert "beta" in outcome.reason
    assert outcome.requirement == "gamma"
    assert seen == []


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("error: command 'gcc' failed: No such file or directory", LayerUnavailable),
        ("error: command '/usr/bin/x86_64-linux-gnu-gcc' failed: No such file", LayerUnavailable),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'cmake'", LayerUnavailable),
        ("unable to execute 'swig': No such file or directory", LayerUnavailable),
        ("/bin/sh: 1: make: not found", LayerUnavailable),
        ("meson.build: ERROR: Unknown compiler(s): [['cc'], ['gcc']]", LayerUnavailable),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'README.md'", LayerFailed),
        ("No such file or directory: 'cmake/settings.txt'", LayerFailed),
        ("error: command 'gcc' failed with exit code 1", LayerFailed),
        ("RuntimeError: go away", LayerFailed),
    ],
)
@pytest.mark.parametrize("here", [False, True])
def test_a_missing_tool_is_ours_only_where_it_is_missing(monkeypatch, said, kind, here):
    monkeypatch.setattr(uv_failures.shutil, "which", lambda name, path: "/bin/x" if here else None)
    text = f"{said}\nerror: Failed to build `/qh/source/gamma-1.0.tar.gz`\n  cause: The build backend returned an error\n"
    seen = Completed(2, None, False, False, b"", text.encode(), 0, {}, 1.0, 1.0, 0)
    outcome = uv_failures.not_built(seen, Package("gamma", "1.0"), ("gamma",))
    assert type(outcome) is (LayerFailed if here else kind)
    assert "gamma 1.0" in outcome.reason
    if isinstance(outcome, LayerFailed):
        assert re.search(re.escape(said), outcome.reason)
