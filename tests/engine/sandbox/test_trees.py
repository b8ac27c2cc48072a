from __future__ import annotations

import io
import tarfile

import pytest

from qualityhub.engine.errors import MachineryError
from qualityhub.engine.sandbox import trees
from qualityhub.engine.sandbox.trees import remove_tree, unpack_stream


def archive(*entries):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind, content in entries:
            entry = tarfile.TarInfo(name)
            entry.type = kind
            entry.mode = 0o4755 if kind == tarfile.REGTYPE else 0o755
            if kind == tarfile.REGTYPE:
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
            else:
                entry.linkname = content
                tar.addfile(entry)
    out.seek(0)
    return out


def unpack(tmp_path, *entries, **options):
    target = tmp_path / "tree"
    return target, unpack_stream(archive(*entries), target, -1, **options)


def test_files_folders_and_links_come_out(tmp_path):
    target, seen = unpack(
        tmp_path,
        ("a", tarfile.DIRTYPE, ""),
        ("a/f", tarfile.REGTYPE, b"hello"),
        ("a/l", tarfile.SYMTYPE, "/etc/passwd"),
        ("a/h", tarfile.LNKTYPE, "a/f"),
    )
    assert (target / "a/f").read_bytes() == b"hello"
    assert str((target / "a/l").readlink()) == "/etc/passwd"
    assert (target / "a/h").stat().st_ino == (target / "a/f").stat().st_ino
    assert (seen.entries, seen.bytes) == (4, 5)


def test_set_id_bits_are_dropped(tmp_path):
    target, _ = unpack(tmp_path, ("f", tarfile.REGTYPE, b"x"))
    assert (target / "f").stat().st_mode & 0o7777 == 0o755


def test_devices_and_pipes_are_skipped(tmp_path):
    target, seen = unpack(tmp_path, ("d", tarfile.CHRTYPE, ""), ("p", tarfile.FIFOTYPE, ""))
    assert seen.skipped == 2
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("name", ["../out", "a/../../out", "/../out"])
def test_names_that_leave_are_refused(tmp_path, name):
    with pytest.raises(MachineryError, match="leaves"):
        unpack(tmp_path, (name, tarfile.REGTYPE, b"x"))
    assert not (tmp_path / "out").exists()


def test_nothing_is_written_through_a_link(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    with pytest.raises(MachineryError):
        unpack(
            tmp_path,
            ("a", tarfile.SYMTYPE, str(outside)),
            ("a/f", tarfile.REGTYPE, b"x"),
        )
    assert list(outside.iterdir()) == []


def test_a_file_replaces_a_link_instead_of_following_it(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("safe")
    target, _ = unpack(
        tmp_path, ("a", tarfile.SYMTYPE, str(outside)), ("a", tarfile.REGTYPE, b"mine")
    )
    assert outside.read_text() == "safe"
    assert (target / "a").read_bytes() == b"mine"


def test_hard_links_to_the_outside_are_refused(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("secret")
    for name in (str(outside), "../outside"):
        target = tmp_path / name.replace("/", "_")
        with pytest.raises(MachineryError):
            unpack_stream(archive(("h", tarfile.LNKTYPE, name)), target, -1)


def test_a_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(trees, "MAX_ENTRIES", 2)
    with pytest.raises(MachineryError, match="larger"):
        unpack(tmp_path, *[(str(n), tarfile.REGTYPE, b"") for n in range(3)])


def test_a_broken_archive_is_our_error(tmp_path):
    with pytest.raises(MachineryError, match="could not be unpacked"):
        unpack_stream(io.BytesIO(b"x" * 2000), tmp_path / "tree", -1)


def test_folders_without_their_write_bit_can_be_removed(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/f").write_text("")
    (tmp_path / "a/b").chmod(0o500)
    remove_tree(tmp_path / "a")
    assert not (tmp_path / "a").exists()
