from __future__ import annotations

import os
import subprocess

import pytest

from qualityhub.cli.changed import changed_since, files_of
from qualityhub.engine.errors import InvalidInputError


def git(folder, *args):
    env = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    subprocess.run(["git", "-C", folder, *args], check=True, env=env, capture_output=True)


@pytest.fixture
def repository(tmp_path):
    top = tmp_path / "repo"
    (top / "envs" / "demo" / "deep").mkdir(parents=True)
    (top / "envs" / "demo" / "scorer.py").write_text("x = 1\n")
    (top / "envs" / "demo" / "deep" / "data.bin").write_bytes(bytes(range(256)) * 9000)
    (top / "envs" / "demo" / "link").symlink_to("scorer.py")
    (top / "other.txt").write_text("o\n")
    git(tmp_path, "init", "-q", top)
    git(top, "add", "-A")
    git(top, "commit", "-qm", "first")
    return top


def test_nothing_changed_in_a_fresh_checkout(repository):
    assert not changed_since(repository / "envs" / "demo", "HEAD")
    assert not changed_since(repository, "HEAD")
    assert not changed_since(repository / "other.txt", "HEAD")


def test_changes_elsewhere_do_not_count(repository):
    (repository / "other.txt").write_text("changed\n")
    assert not changed_since(repository / "envs", "HEAD")
    assert changed_since(repository / "other.txt", "HEAD")


@pytest.mark.parametrize(
    "change",
    [
        lambda demo: (demo / "scorer.py").write_text("x = 2\n"),
        lambda demo: (demo / "new.py").write_text(""),
        lambda demo: (demo / "scorer.py").unlink(),
        lambda demo: (demo / "scorer.py").chmod(0o755),
        lambda demo: ((demo / "link").unlink(), (demo / "link").symlink_to("deep")),
        lambda demo: (demo / "scorer.py").rename(demo / "renamed.py"),
        lambda demo: os.mkfifo(demo / "pipe"),
    ],
    ids=["content", "new", "gone", "mode", "link", "renamed", "pipe"],
)
def test_every_kind_of_change_counts(repository, change):
    demo = repository / "envs" / "demo"
    change(demo)
    assert changed_since(demo, "HEAD")


def test_what_no_digest_covers_does_not_count(repository):
    cache = repository / "envs" / "demo" / "__pycache__"
    cache.mkdir()
    (cache / "scorer.pyc").write_bytes(b"x")
    assert not changed_since(repository / "envs" / "demo", "HEAD")


def test_an_earlier_revision_is_compared_with_the_files_of_now(repository):
    demo = repository / "envs" / "demo"
    (demo / "scorer.py").write_text("x = 2\n")
    git(repository, "commit", "-qam", "second")
    assert not changed_since(demo, "HEAD")
    assert changed_since(demo, "HEAD~1")


def test_a_file_counts_with_what_describes_it_beside(repository):
    (repository / "qualityhub.toml").write_text("[environment]\n")
    assert changed_since(repository / "other.txt", "HEAD")


def test_a_repository_cannot_make_git_run_its_programs(repository, tmp_path):
    """Filters, monitors and external diffs of the inspected repository stay unused."""
    mark = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    program.chmod(0o755)
    for key in (
        "filter.x.clean",
        "filter.x.smudge",
        "filter.x.process",
        "diff.external",
        "core.fsmonitor",
        "core.sshCommand",
    ):
        git(repository, "config", key, str(program))
    (repository / ".gitattributes").write_text("* filter=x diff=x\n")
    (repository / "envs" / "demo" / "scorer.py").write_text("x = 3\n")
    mark.unlink(missing_ok=True)
    assert changed_since(repository, "HEAD")
    assert not mark.exists()


@pytest.mark.parametrize("revision", ["nope", "--output=/tmp/x", "", "HEAD:envs"])
def test_an_unknown_revision_is_named(repository, revision):
    with pytest.raises(InvalidInputError) as error:
        changed_since(repository, revision)
    assert error.value.code == "git.unknown_revision"


def test_a_folder_without_a_repository_is_named(tmp_path):
    with pytest.raises(InvalidInputError) as error:
        changed_since(tmp_path, "HEAD")
    assert error.value.code == "git.no_repository"


def test_a_class_in_a_file_means_the_file_with_its_neighbours(repository):
    scorer = repository / "envs" / "demo" / "scorer.py"
    assert files_of(f"{scorer}:Env") == scorer.parent
    assert files_of(str(scorer)) == scorer
    assert files_of("gymnasium:CartPole-v1") is None


def test_inspect_skips_what_did_not_change_and_says_so(
    call, engine, repository, make_report, monkeypatch
):
    monkeypatch.chdir(repository)
    result = call("inspect", "envs/demo", "--changed-since", "HEAD", "--format", "json")
    assert result.code == 0
    assert result.json == {
        "schema": "qualityhub.inspections/1",
        "inspections": [],
        "unchanged": ["envs/demo"],
    }
    assert "unchanged since HEAD" in result.err
    assert engine.sources == []
    (repository / "envs" / "demo" / "scorer.py").write_text("x = 2\n")
    engine.answers |= {"envs/demo": make_report(), "gymnasium:X": make_report()}
    result = call("inspect", "envs/demo", "gymnasium:X", "--changed-since", "HEAD")
    assert result.code == 0
    assert engine.sources == ["envs/demo", "gymnasium:X"]
