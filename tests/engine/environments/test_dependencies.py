from __future__ import annotations

import pytest

from qualityhub.engine.environments.dependencies import read_dependencies
from qualityhub.engine.environments.manifest import read_manifest
from qualityhub.engine.errors import UnreadablePackageError

BLOCK = '# /// script\n# requires-python = ">=3.10"\n# dependencies = [\n#   "numpy==2.2.1",\n# ]\n# ///\n'


@pytest.fixture
def read(package):
    def from_files(files, **options):
        root = package(files)
        return read_dependencies(root, read_manifest(root), **options)

    return from_files


def refused(read, files, **options):
    with pytest.raises(UnreadablePackageError) as caught:
        read(files, **options)
    return caught.value


def test_nothing_declared_is_nothing_needed(read):
    found, problems = read({"scorer.py": "import numpy\n"}, entry="scorer.py")
    assert (found.requirements, found.sources, found.python, problems) == ((), (), None, ())


def test_the_manifest_is_the_whole_declaration(read):
    files = {
        "qualityhub.toml": '[environment]\npython = "==3.12.*"\ndependencies = ["a==1"]\n',
        "e.py": BLOCK,
        "requirements.txt": "b==2\n",
    }
    found, _ = read(files, entry="e.py")
    assert (found.requirements, found.python) == (("a==1",), "==3.12.*")
    assert found.sources == ("qualityhub.toml",)


def test_the_manifest_may_name_requirements_files(read):
    files = {
        "qualityhub.toml": '[environment]\nrequirements = ["deps/a.txt", "deps/b.txt"]\n',
        "deps/a.txt": "a==1\n",
        "deps/b.txt": "b==2\na==1\n",
    }
    found, _ = read(files)
    assert found.requirements == ("a==1", "b==2")


def test_a_script_block_comes_before_files_beside_it(read):
    found, _ = read({"e.py": BLOCK, "requirements.txt": "b==2\n"}, entry="e.py")
    assert (found.requirements, found.python) == (("numpy==2.2.1",), ">=3.10")
    assert found.sources == ("e.py (PEP 723)",)


def test_a_project_and_requirements_beside_the_entry_are_read_together(read):
    files = {
        "pkg/e.py": "",
        "pkg/pyproject.toml": '[project]\nrequires-python = ">=3.11"\ndependencies = ["a==1"]\n',
        "pkg/requirements.txt": "b==2\n",
        "pkg/requirements-dev.txt": "pytest\n",
        "requirements.txt": "other\n",
    }
    found, _ = read(files, entry="pkg/e.py", beside="pkg")
    assert (found.requirements, found.python) == (("a==1", "b==2"), ">=3.11")
    assert found.sources == ("pkg/pyproject.toml", "pkg/requirements.txt")


def test_requirements_files_are_read_as_pip_reads_them(read):
    text = (
        "# comment\n\na==1  # why\nb[x,y]>=2 ; python_version < '4'\n"
        "c==3 \\\n  --hash=sha256:00 \\\n  --hash=sha256:11\n-r more/inner.txt\nd @ https://example.org/d.zip#sha256=00\n"
    )
    files = {
        "requirements.txt": text,
        "more/inner.txt": "e==5\n--requirement ../last.txt\n",
        "last.txt": "f\n",
    }
    found, problems = read(files)
    assert set(found.requirements) == {
        "a==1",
        "b[x,y]>=2 ; python_version < '4'",
        "c==3",
        "d @ https://example.org/d.zip#sha256=00",
        "e==5",
        "f",
    }
    assert found.sources == ("requirements.txt", "more/inner.txt", "last.txt")
    assert problems == ()


@pytest.mark.parametrize(
    "line",
    [
        "--index-url https://index.example/simple",
        "-e .",
        "./local",
        "git+https://example.org/x",
        "-c limits.txt",
    ],
)
def test_what_is_not_followed_is_reported_with_its_line(read, line):
    found, (problem,) = read({"requirements.txt": f"a==1\n{line}\n"})
    assert found.requirements == ("a==1",)
    assert problem.code == "FMT004"
    assert problem.location == "requirements.txt:2"


def test_files_that_include_each_other_are_read_once(read):
    found, _ = read({"requirements.txt": "-r b.txt\na\n", "b.txt": "-r requirements.txt\nb\n"})
    assert sorted(found.requirements) == ["a", "b"]


@pytest.mark.parametrize(
    ("files", "code", "words"),
    [
        ({"requirements.txt": "a==1\n!bad\n"}, "package.bad_requirement", "requirements.txt:2"),
        ({"requirements.txt": "a;" + "(" * 3000}, "package.bad_requirement", "requirements.txt:1"),
        ({"requirements.txt": "-r ../outside.txt\n"}, "package.link_escape", "outside.txt"),
        ({"requirements.txt": "-r /etc/passwd\n"}, "package.link_escape", "/etc/passwd"),
        ({"requirements.txt": "-r missing.txt\n"}, "package.not_found", "missing.txt"),
        ({"pyproject.toml": "[project]\ndependencies = 5\n"}, "package.wrong_type", "dependencies"),
        ({"pyproject.toml": "project = 5\n"}, "package.wrong_type", "project"),
        (
            {"pyproject.toml": "[project]\nrequires-python = 'new'\n"},
            "package.bad_requirement",
            "new",
        ),
        ({"pyproject.toml": "["}, "package.bad_toml", "pyproject.toml"),
        (
            {"qualityhub.toml": '[environment]\npython = "three"\n'},
            "package.bad_requirement",
            "three",
        ),
    ],
)
def test_a_declaration_that_cannot_be_read_is_named(read, files, code, words):
    error = refused(read, files)
    assert error.code == code
    assert words in error.message
    assert error.hint


@pytest.mark.parametrize(
    ("source", "code"),
    [
        (BLOCK + "\n" + BLOCK, "package.contradiction"),
        ("# /// script\n# dependencies = [\n# ///\n", "package.bad_toml"),
        ("# /// script\n# dependencies = 5\n# ///\n", "package.wrong_type"),
    ],
)
def test_a_broken_script_block_is_refused(read, source, code):
    error = refused(read, {"e.py": source}, entry="e.py")
    assert error.code == code
    assert "e.py" in error.message


@pytest.mark.parametrize(
    "source",
    [
        "# /// script\n# dependencies = ['a']\nx = 1\n",
        "# /// other\n# ///\n",
        "# /// script\n" * 20_000,
    ],
)
def test_a_block_that_never_ends_is_none(read, source):
    assert read({"e.py": source}, entry="e.py")[0].requirements == ()


def test_a_line_of_spaces_takes_no_time(read):
    found, _ = read({"requirements.txt": "a" + " " * 500_000 + "; python_version > '3'\n"})
    assert len(found.requirements) == 1
