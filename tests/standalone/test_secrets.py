from __future__ import annotations

import os
import stat

import pytest

from qualityhub.engine.errors import ConflictError
from qualityhub.standalone.secretfiles import ensure_secret, private_folder


@pytest.fixture
def loose_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_secret_is_made_once_and_private_whatever_the_umask(tmp_path, loose_umask):
    path = tmp_path / "secrets" / "key"
    value = ensure_secret(path)
    assert len(value) >= 40
    assert ensure_secret(path) == value
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_two_secrets_differ(tmp_path):
    assert ensure_secret(tmp_path / "a") != ensure_secret(tmp_path / "b")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_secret_open_to_others_is_refused(tmp_path, mode):
    path = tmp_path / "key"
    ensure_secret(path)
    path.chmod(mode)
    with pytest.raises(ConflictError) as caught:
        ensure_secret(path)
    assert caught.value.code == "secret.open"
    assert f"chmod 600 {path}" in caught.value.hint


def test_an_empty_secret_is_refused(tmp_path):
    path = tmp_path / "key"
    path.touch(mode=0o600)
    with pytest.raises(ConflictError) as caught:
        ensure_secret(path)
    assert caught.value.code == "secret.empty"


def test_a_link_in_the_place_of_a_secret_is_not_followed(tmp_path):
    target = tmp_path / "target"
    target.write_text("planted\n")
    target.chmod(0o600)
    (tmp_path / "key").symlink_to(target)
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        ensure_secret(tmp_path / "key")


def test_an_existing_folder_keeps_its_mode(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir(mode=0o750)
    assert private_folder(folder).stat().st_mode & 0o777 == 0o750
