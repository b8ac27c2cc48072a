from __future__ import annotations

import io
import json
import os
import tarfile
import time
from pathlib import Path

import pytest

from qualityhub.engine.sandbox.images.importing import import_archive
from qualityhub.engine.sandbox.images.index import architecture


def members(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


@pytest.fixture
def saved(tmp_path):
    """An archive as docker save writes it, of one file."""

    def make(*tags, name="image.tar", content=b"hello"):
        from hashlib import sha256

        layer = members({"word": content})
        config = json.dumps(
            {
                "os": "linux",
                "architecture": architecture(),
                "rootfs": {"diff_ids": [f"sha256:{sha256(layer).hexdigest()}"]},
            }
        ).encode()
        row = {"Config": "config.json", "RepoTags": list(tags), "Layers": ["layer.tar"]}
        files = {"config.json": config, "layer.tar": layer}
        path = tmp_path / name
        path.write_bytes(members({**files, "manifest.json": json.dumps([row]).encode()}))
        return path

    return make


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


def test_an_archive_is_imported_listed_and_removed(call, saved, home):
    done = call("image", "import", saved("lab/one:1"), "--name", "lab/mine")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("lab/mine:latest: imported")
    again = call("image", "import", saved("lab/one:1"))
    assert again.out.startswith("lab/one:1: already here")
    listed = call("image", "list").out
    assert "lab/mine:latest" in listed
    assert "lab/one:1" in listed
    assert call("image", "remove", "lab/one:1").code == 0
    (row,) = call("image", "list", "--format", "json").json["images"]
    assert (row["name"], row["here"]) == ("lab/mine:latest", True)
    assert row["image"].startswith("sha256:")


def test_an_import_as_json_says_what_it_made(call, saved):
    made = call("image", "import", saved("a:1", "b:2"), "--format", "json").json["imported"]
    assert made["names"] == ["a:1", "b:2"]
    assert made["new"] is True


def test_an_archive_without_a_name_needs_one(call, saved):
    refused = call("image", "import", saved())
    assert refused.code == 2
    assert "--name" in refused.err
    assert call("image", "import", saved(), "--name", "a b").code == 2


def test_what_is_no_archive_is_a_plain_error(call, tmp_path):
    (tmp_path / "x.tar").write_bytes(b"junk")
    refused = call("image", "import", tmp_path / "x.tar", "--name", "x")
    assert refused.code == 2
    assert "'x.tar' is no readable tar archive" in refused.err
    assert "hint:" in refused.err
    assert call("image", "import", tmp_path / "missing.tar").code == 2


def test_nothing_imported_says_how(call):
    assert "qualityhub image import" in call("image", "list").out


def test_a_name_that_was_not_imported_is_named(call):
    refused = call("image", "remove", "nothing")
    assert refused.code == 2
    assert "nothing:latest" in refused.err


def test_the_store_shows_and_prunes_what_nobody_uses(call, saved, home):
    import_archive(saved("a:1"), home)
    shown = call("store")
    assert shown.code == 0
    assert "images" in shown.out
    assert "No cap" in shown.out
    told = call("store", "prune", "--max-size", "0", "--dry-run")
    assert told.out.startswith("would be removed: 1 of images")
    document = call("store", "--format", "json").json
    images = next(row for row in document["kinds"] if row["kind"] == "images")
    assert (images["count"], images["in_use"]) == (1, 0)
    assert document["bytes"] == sum(row["bytes"] for row in document["kinds"]) > 0
    done = call("store", "prune", "--max-size", "0", "--format", "json").json
    assert [item["kind"] for item in done["removed"]] == ["images"]
    assert done["left_bytes"] == 0


def test_what_was_unused_for_so_long_is_pruned(call, saved, home):
    for number, days in enumerate((40, 1)):
        path = import_archive(saved(name=f"{number}.tar", content=bytes([number])), home).tree.path
        stamp = time.time() - days * 86_400
        os.utime(Path(f"{path}.json"), (stamp, stamp))
    done = call("store", "prune", "--unused-for", "30d")
    assert done.out.startswith("removed: 1 of images")
    assert call("store", "prune", "--unused-for", "30d").out.startswith("removed: nothing")


def test_a_named_image_stays_and_pruning_says_so(call, saved):
    call("image", "import", saved("a:1"))
    done = call("store", "prune", "--max-size", "1")
    assert done.out.startswith("removed: nothing")
    assert "imported under a name" in done.err
    assert "kept by name" in call("store").out


def test_pruning_needs_to_know_what_may_go(call, saved, monkeypatch):
    refused = call("store", "prune")
    assert refused.code == 2
    assert "--max-size" in refused.err
    monkeypatch.setenv("QH_STORE_MAX_BYTES", "1GiB")
    assert call("store", "prune").code == 0
    assert "Kept below 1.0 GiB" in call("store").out
    monkeypatch.setenv("QH_STORE_MAX_BYTES", "lots")
    refused = call("store")
    assert refused.code == 2
    assert "QH_STORE_MAX_BYTES" in refused.err


@pytest.mark.parametrize("words", [["--max-size", "big"], ["--unused-for", "long"]])
def test_sizes_and_durations_are_checked(call, words):
    assert call("store", "prune", *words).code == 2


def test_an_import_over_the_cap_makes_room(call, saved, home, monkeypatch):
    old = import_archive(saved(name="old.tar", content=b"o" * 50_000), home).tree.path
    stamp = time.time() - 86_400
    os.utime(Path(f"{old}.json"), (stamp, stamp))
    monkeypatch.setenv("QH_STORE_MAX_BYTES", "60000")
    assert call("image", "import", saved("new:1", content=b"n" * 50_000)).code == 0
    assert not old.exists()
    assert call("image", "list", "--format", "json").json["images"][0]["here"]
