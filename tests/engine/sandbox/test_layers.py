from __future__ import annotations

import json
import threading

import pytest

from qualityhub.engine.sandbox.interpreters import default_interpreter
from qualityhub.engine.sandbox.layers import (
    TARGET,
    Layer,
    LayerFailed,
    LayerUnavailable,
    build_layer,
    locate_layer,
)
from qualityhub.engine.sandbox.layers.model import IndexFile, Lock, Package, lock_from_json
from qualityhub.engine.sandbox.port import Command, Mount


def build(bwrap, home, *requirements, **options):
    return build_layer(requirements, default_interpreter(), home, bwrap, **options)


def run_in(bwrap, layer, program):
    return bwrap.run(
        Command(argv=(f"{TARGET}/bin/python", "-c", program), mounts=(Mount(TARGET, layer.path),))
    )


def test_a_layer_is_made_once_and_works_where_it_is_mounted(bwrap, tmp_path, packages, index):
    index.wheel(packages, "alpha", "1.0", requires=("beta>=2",))
    index.wheel(packages, "beta", "2.0")
    told = []
    layer = build(bwrap, tmp_path / "home", "alpha", on_progress=told.append)
    assert isinstance(layer, Layer), layer
    assert layer.lock == ("alpha==1.0", "beta==2.0")
    assert told == ["resolving 1 requirement", "downloading 2 files", "installing 2 packages"]
    seen = run_in(bwrap, layer, "import alpha, beta, sys; print(alpha.__file__, sys.prefix)")
    assert seen.stdout.decode().split() == [
        f"{TARGET}/lib/python{default_interpreter().version.rsplit('.', 1)[0]}/site-packages/alpha.py",
        TARGET,
    ], seen.stderr

    del told[:]
    assert build(bwrap, tmp_path / "home", "alpha", on_progress=told.append) == layer
    assert told == []
    assert locate_layer(layer.digest, tmp_path / "home") == layer


def test_bytecode_does_not_depend_on_file_times(bwrap, tmp_path, packages, index):
    index.wheel(packages, "alpha", "1.0")
    layer = build(bwrap, tmp_path / "home", "alpha")
    (compiled,) = layer.path.glob("lib/*/site-packages/__pycache__/alpha.*.pyc")
    # Bit 0: named by a hash of the source; bit 1, unset: the source is not checked again.
    assert int.from_bytes(compiled.read_bytes()[4:8], "little") == 0b01


def test_the_newest_is_locked_until_a_refresh(bwrap, tmp_path, packages, index):
    index.wheel(packages, "alpha", "1.0")
    first = build(bwrap, tmp_path / "home", "alpha")
    index.wheel(packages, "alpha", "2.0")
    assert build(bwrap, tmp_path / "home", "alpha") == first
    later = build(bwrap, tmp_path / "home", "alpha", refresh=True)
    assert later.lock == ("alpha==2.0",)
    assert later.digest != first.digest


def test_without_requirements_a_layer_hides_the_host(bwrap, tmp_path, monkeypatch):
    monkeypatch.setenv("UV_DEFAULT_INDEX", "file:///nowhere")
    layer = build(bwrap, tmp_path / "home")
    assert isinstance(layer, Layer), layer
    seen = run_in(bwrap, layer, "import sys; print([p for p in sys.path if 'packages' in p])")
    (path,) = eval(seen.stdout)
    assert path.startswith(TARGET)


@pytest.mark.parametrize(
    ("requirement", "named"),
    [("none-such", "not found"), ("alpha>9", "only alpha"), ("alpha<1,>2", "")],
)
def test_what_does_not_resolve_is_the_environments_fault(
    bwrap, packages, index, requirement, named
):
    index.wheel(packages, "alpha", "1.0")
    seen = build(bwrap, packages.parent / "home", requirement)
    assert isinstance(seen, LayerFailed), seen
    assert named in seen.reason
    assert seen.requirement == requirement


@pytest.mark.parametrize(
    "requirement",
    [
        "",
        "--index-url=https://example.org",
        "-e .",
        "x @ file:///etc",
        "x @ git+https://e.org/x",
        "a b",
    ],
)
def test_what_is_no_requirement_never_reaches_uv(bwrap, tmp_path, requirement):
    seen = build(bwrap, tmp_path / "home", requirement)
    assert isinstance(seen, LayerFailed)
    assert seen.requirement == requirement
    assert not (tmp_path / "home").exists()


def test_source_distributions_are_built_inside_the_sandbox(bwrap, tmp_path, packages, index):
    index.sdist(packages, "gamma", "1.0", setup=index.backend("gamma", "1.0", before="VALUE = 3"))
    told = []
    layer = build(bwrap, tmp_path / "home", "gamma", on_progress=told.append)
    assert isinstance(layer, Layer), layer
    assert any("from source" in line for line in told)
    assert run_in(bwrap, layer, "import gamma; print(gamma.VALUE)").stdout == b"3\n"


def test_a_build_that_fails_is_the_environments_fault(bwrap, tmp_path, packages, index):
    index.sdist(packages, "gamma", "1.0", setup="raise RuntimeError('no compiler today')\n")
    seen = build(bwrap, tmp_path / "home", "gamma")
    assert isinstance(seen, LayerFailed), seen
    assert seen.requirement == "gamma"
    assert "no compiler today" in seen.log


def test_an_unreachable_index_is_not_the_environments_fault(bwrap, tmp_path, monkeypatch):
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_TIMEOUT", "2")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    seen = build(bwrap, tmp_path / "home", "alpha")
    assert isinstance(seen, LayerUnavailable), seen
    assert seen.reason == "no package index reachable"


def test_two_at_once_make_one_layer(bwrap, tmp_path, packages, index):
    index.wheel(packages, "alpha", "1.0")
    told, made = [], []

    def one():
        made.append(build(bwrap, tmp_path / "home", "alpha", on_progress=told.append))

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made[0] == made[1]
    assert told.count("installing 1 packages") == 1


def test_secrets_of_our_process_do_not_reach_a_build(bwrap, tmp_path, packages, index, monkeypatch):
    monkeypatch.setenv("QH_SECRET_KEY", "top-secret-value")
    index.sdist(
        packages,
        "gamma",
        "1.0",
        setup="import os\nraise RuntimeError(sorted(os.environ.items()))\n",
    )
    seen = build(bwrap, tmp_path / "home", "gamma")
    assert isinstance(seen, LayerFailed)
    assert "PATH" in seen.log
    assert "top-secret-value" not in seen.log


def test_a_stored_lock_of_another_form_is_resolved_again():
    lock = Lock((Package("alpha", "1.0", (IndexFile("a.whl", "file:///a.whl", "aa"),)),), "said")
    assert lock_from_json(json.loads(json.dumps(lock.as_json()))) == lock
    assert lock_from_json({"text": "alpha==1.0", "builds": False, "log": ""}) is None
    assert lock_from_json({}) is None
