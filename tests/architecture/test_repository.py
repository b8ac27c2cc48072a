"""What the repository promises about itself."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REGISTRIES = re.compile(r"pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|deb\.debian\.org")


def tracked(*patterns):
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *patterns], cwd=ROOT, capture_output=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name]


def test_no_file_names_a_package_registrys_host():
    bad = []
    for path in tracked():
        if path == Path(__file__) or not path.is_file():
            continue
        if REGISTRIES.search(path.read_text(encoding="utf-8", errors="replace")):
            bad.append(str(path.relative_to(ROOT)))
    assert bad == []


def test_the_lock_pins_every_package_with_hashes():
    text = (ROOT / "requirements.lock").read_text()
    blocks = re.split(r"\n(?=[a-z0-9])", text)
    pins = [block for block in blocks if re.match(r"[A-Za-z0-9_.\[\]-]+==", block)]
    assert len(pins) > 80
    assert all("--hash=sha256:" in block for block in pins)


def test_every_direct_dependency_is_in_the_lock():
    import tomllib

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(text for extra in extras for text in extra)]
    names = {canonicalize_name(Requirement(text).name) for text in wanted}
    locked = set(
        re.findall(r"^([a-z0-9.-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    )
    assert names <= locked


def test_every_ignore_of_the_linter_has_its_reason():
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    codes = [line for line in lines if re.match(r'\s+"[A-Z]{1,4}\d*",', line)]
    assert codes
    assert [line for line in codes if "#" not in line] == []


def test_the_wheel_carries_pages_programs_and_demo(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    [wheel] = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for name in (
        "qualityhub/_templates/base.html",
        "qualityhub/dashboard/static/dashboard/app.css",
        "qualityhub/engine/trials/programs/common.py",
        "qualityhub/engine/trials/programs/task.sh",
        "qualityhub/standalone/demo/environments/code/string-kata/tasks.jsonl",
        "qualityhub/standalone/demo/environments/terminal/log-report/environment/Dockerfile",
        "workers/app.py",
    ):
        assert name in names
    assert not [name for name in names if "__pycache__" in name or name.startswith("tests/")]


def test_programs_for_the_sandbox_parse_as_python_3_8():
    import ast

    for path in sorted((ROOT / "qualityhub/engine/trials/programs").glob("*.py")):
        ast.parse(path.read_text(), feature_version=(3, 8))


def test_the_engine_imports_without_django_in_the_process():
    code = (
        "import sys, qualityhub.engine.inspect, qualityhub.engine.gate.compare\n"
        "bad = {'django', 'celery', 'rest_framework', 'redis'} & set(sys.modules)\n"
        "sys.exit(str(bad) if bad else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
