from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile

import pytest

from qualityhub.engine.errors import InvalidInputError, MachineryError
from qualityhub.engine.sandbox import idmaps
from qualityhub.engine.sandbox.images.importing import ImportLimits, import_archive
from qualityhub.engine.sandbox.images.model import image_digest

from .image_archives import (
    ARCH,
    OTHER,
    Image,
    descriptor,
    file,
    folder,
    gone,
    hard,
    hybrid,
    link,
    oci,
    opaque,
    saved,
    sha,
    special,
    tar,
    tar_of,
)

BASE = tar(
    folder("etc"),
    file("etc/passwd", "root:x:0:0::/root:/bin/sh\n"),
    folder("opt"),
    file("opt/a", "a"),
    file("opt/b", "b"),
)


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def write(tmp_path):
    """Write an archive's files as one tar."""

    def make(files, name="image.tar", pack=None):
        data = files if isinstance(files, bytes) else tar_of(files)
        path = tmp_path / name
        path.write_bytes(pack(data) if pack else data)
        return path

    return make


@pytest.fixture
def tree_of(write, home):
    """The tree of an image with these layers."""

    def make(*layers, **options):
        path = write(oci(Image([tar(*layer) for layer in layers])))
        return import_archive(path, home, **options).tree.path

    return make


def names(folder):
    return sorted(item.name for item in folder.iterdir())


def refused(path, home, code, **options):
    with pytest.raises(InvalidInputError) as caught:
        import_archive(path, home, **options)
    assert caught.value.code == code, caught.value
    assert caught.value.message.isprintable()
    assert caught.value.hint
    left = [item for item in (home / "images").iterdir() if item.name != "names"]
    assert left == []
    return caught.value


@pytest.mark.parametrize("packing", ["", "gzip", "zstd"])
@pytest.mark.parametrize("layout", [oci, saved, hybrid])
def test_every_layout_and_packing_gives_the_same_tree_under_the_same_digest(
    write, tmp_path, layout, packing
):
    config = {
        "Env": ["PATH=/bin", "A=b=c"],
        "WorkingDir": "/opt/../work",
        "User": "1000:5",
        "Entrypoint": ["/start", "now"],
        "Cmd": ["bash"],
    }
    upper = tar(gone("opt/a"), file("opt/b", "new"))
    image = Image([BASE, upper], config, packing="" if layout is saved else packing)
    made = import_archive(write(layout(image)), tmp_path / "home")
    tree = made.tree
    assert (made.new, tree.digest) == (True, image_digest(image.id))
    assert tree.env == {"PATH": "/bin", "A": "b=c"}
    assert (tree.workdir, tree.user) == ("/work", "1000:5")
    assert (tree.entrypoint, tree.cmd) == (("/start", "now"), ("bash",))
    assert names(tree.path / "opt") == ["b"]
    assert (tree.path / "opt/b").read_text() == "new"
    again = import_archive(write(layout(image), "again.tar"), tmp_path / "home")
    assert (again.new, again.tree.path) == (False, tree.path)


def test_an_archive_may_be_a_folder_or_compressed_as_a_whole(write, tmp_path, home):
    files = oci(Image([BASE]), names=["lab/one:1"])
    laid_out = tmp_path / "layout"
    for name, content in files.items():
        (laid_out / name).parent.mkdir(parents=True, exist_ok=True)
        (laid_out / name).write_bytes(content)
    first = import_archive(laid_out, home)
    assert first.names == ("lab/one:1",)
    packed = import_archive(write(files, "image.tar.gz", gzip.compress), home)
    assert (packed.new, packed.tree) == (False, first.tree)


def test_a_link_to_a_twin_layer_is_read_as_the_layer(write, home):
    image = Image([BASE, BASE])
    files = saved(image)
    row = json.loads(files["manifest.json"])[0]
    first = row["Layers"][0]
    row["Layers"] = [first, "twin/layer.tar"]
    members = [file(name, content) for name, content in files.items() if name != "manifest.json"]
    members += [link("twin/layer.tar", f"../{first}"), file("manifest.json", json.dumps([row]))]
    assert import_archive(write(tar(*members)), home).new


def test_the_platform_of_this_host_is_chosen_from_a_nested_index(write, home):
    mine = Image([tar(file("mine"))])
    other = Image([tar(file("other"))], architecture=OTHER)
    tree = import_archive(write(oci(other, mine, nested=True)), home).tree
    assert names(tree.path) == ["mine"]


@pytest.mark.parametrize("layout", [oci, saved])
def test_an_image_of_another_platform_is_named_with_what_it_needs(write, home, layout):
    error = refused(write(layout(Image([BASE], architecture=OTHER))), home, "image.platform")
    assert f"linux/{OTHER}" in error.message
    assert f"linux/{ARCH}" in error.hint


def test_of_several_images_one_is_asked_for_by_its_name(write, home):
    one, two = Image([tar(file("one"))]), Image([tar(file("two"))])
    path = write(oci(one, two, names=["lab/one:1", "lab/two:1"]))
    assert "lab/two:1" in refused(path, home, "image.several").message
    assert "lab/two:1" in refused(path, home, "image.unnamed", wanted="lab/three").message
    assert names(import_archive(path, home, wanted="lab/two:1").tree.path) == ["two"]


def test_statements_about_an_image_are_no_images(write, home):
    files = oci(Image([BASE]))
    index = json.loads(files["index.json"])
    index["manifests"].append(
        {
            **descriptor(b"gone", "application/vnd.oci.image.manifest.v1+json"),
            "annotations": {"vnd.docker.reference.type": "attestation-manifest"},
            "platform": {"os": "unknown", "architecture": "unknown"},
        }
    )
    files["index.json"] = json.dumps(index).encode()
    assert import_archive(write(files), home).new


# Layers ---------------------------------------------------------------------------------------


def test_whiteouts_remove_files_links_and_folders_of_lower_layers_only(tree_of):
    tree = tree_of(
        [
            file("plain"),
            link("pointer", "/plain"),
            folder("deep"),
            file("deep/x/y/z"),
            file("kept/old"),
        ],
        [
            gone("plain"),
            gone("pointer"),
            file("kept/new"),
            gone("kept/old"),
            file("deep/x/fresh"),
            gone("deep/x"),
            gone("never/was"),
        ],
    )
    assert not (tree / "plain").exists()
    assert not (tree / "pointer").is_symlink()
    assert names(tree / "kept") == ["new"]
    # What the same layer wrote stays, whatever the order.
    assert names(tree / "deep/x") == ["fresh"]


def test_an_opaque_folder_hides_what_was_below_wherever_the_mark_stands(tree_of):
    lower = [file("a/old"), file("a/sub/old"), file("b/old")]
    tree = tree_of(lower, [opaque("a"), file("a/sub/new"), file("b/new"), opaque("b")])
    found = sorted(str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file())
    assert found == ["a/sub/new", "b/new"]


def test_a_later_layer_replaces_whatever_was_there(tree_of, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("safe")
    tree = tree_of(
        [file("file"), file("dir/f"), link("way", str(outside))],
        [folder("file"), file("file/in"), file("dir", "now a file"), folder("way"), file("way/f")],
    )
    assert (tree / "file/in").is_file()
    assert (tree / "dir").read_text() == "now a file"
    assert (tree / "way/f").read_text() == "x"
    assert (outside / "f").read_text() == "safe"


def test_hard_links_reach_into_lower_layers_and_stay_one_file(tree_of):
    tree = tree_of([file("a", "content"), link("s", "a")], [hard("b", "a"), hard("t", "s")])
    assert (tree / "a").stat().st_ino == (tree / "b").stat().st_ino
    assert str((tree / "t").readlink()) == "a"


def test_replacing_one_of_two_hard_links_leaves_the_other(tree_of):
    tree = tree_of([file("a", "old"), hard("b", "a")], [file("b", "new")])
    assert (tree / "a").read_text() == "old"
    assert (tree / "b").read_text() == "new"


def test_modes_times_and_pipes_are_kept_and_privileges_are_not(tree_of):
    tree = tree_of(
        [
            folder("closed", 0o500),
            file("closed/f", mode=0o4711),
            folder("shared", 0o1777),
            special("pipe", tarfile.FIFOTYPE),
            special("null", tarfile.CHRTYPE),
            link("far", "/etc/shadow"),
        ]
    )
    assert (tree / "closed").stat().st_mode & 0o7777 == 0o500
    assert (tree / "closed/f").stat().st_mode & 0o7777 == 0o711
    assert (tree / "shared").stat().st_mode & 0o7777 == 0o1777
    assert (tree / "pipe").is_fifo()
    assert not (tree / "null").exists()
    assert str((tree / "far").readlink()) == "/etc/shadow"
    for name in ("closed", "closed/f", "far"):
        assert (tree / name).lstat().st_mtime == 1_700_000_000


@pytest.mark.skipif(not idmaps.current().keeps_owners, reason="owners are kept by root only")
def test_owners_move_into_the_mapped_range_and_never_out_of_it(tree_of):
    first = idmaps.current().owner
    high = first + min(65_534, idmaps.size_of(first) - 1)
    tree = tree_of(
        [
            file("root"),
            file("agent", uid=1500, gid=1501),
            file("huge", uid=2**31 - 1, gid=0),
            file("below", uid=-first, gid=-1),
            folder("home", uid=1500),
        ]
    )
    owners = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in tree.iterdir()}
    assert owners == {
        "root": (first, first),
        "agent": (first + 1500, first + 1501),
        "huge": (high, first),
        "below": (high, high),
        "home": (first + 1500, first),
    }


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_foreign_names_survive(write, home, form):
    long = "/".join(["n" * 200] * 5)
    layer = tar(file(long, "deep"), file("name-é", "accent"), hard("h", long), form=form)
    tree = import_archive(write(oci(Image([layer]))), home).tree.path
    assert (tree / long).read_text() == (tree / "h").read_text() == "deep"
    assert (tree / "name-é").read_text() == "accent"


def test_sparse_files_are_whole_and_take_no_room(write, home, tmp_path):
    made = tmp_path / "sparse"
    with made.open("wb") as stream:
        stream.write(b"begin")
        stream.truncate(64 * 1024 * 1024)
        stream.seek(32 * 1024 * 1024)
        stream.write(b"middle")
    content = made.read_bytes()
    for form in ("gnu", "pax"):
        layer = tmp_path / f"{form}.tar"
        code = os.system(f"tar -C {tmp_path} --format={form} -S -cf {layer} sparse")
        assert code == 0
        assert layer.stat().st_size < 1_000_000
        tree = import_archive(write(oci(Image([layer.read_bytes()]))), home).tree.path
        assert (tree / "sparse").read_bytes() == content
        assert (tree / "sparse").stat().st_blocks * 512 < 4_000_000


# Hostile --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entries",
    [
        [file("../out")],
        [file("a/../../out")],
        [file("/etc/absolute")],
        [link("way", "/tmp"), file("way/planted")],
        [link("way", ".."), hard("h", "way/out")],
        [file("plain"), file("plain/below")],
        [hard("h", "missing")],
        [hard("h", "../../etc/passwd")],
        [folder("d"), hard("h", "d")],
        [file(".wh...")],
        [file("a/.wh..")],
        [file(".wh.")],
        [file("n" * 256)],
        [file("/".join(["d"] * 300))],
    ],
)
def test_layers_that_would_leave_their_tree_are_refused(write, home, tmp_path, entries):
    refused(write(oci(Image([tar(*entries)]))), home, "image.unsafe")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "image.tar"]


def test_whiteouts_follow_no_link(tree_of, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("safe")
    tree_of([link("way", str(outside))], [gone("way/f"), opaque("way")])
    assert (outside / "f").read_text() == "safe"


def changed(files, name, content):
    return {**files, name: content}


def test_a_blob_that_is_not_what_its_digest_says_is_refused(write, home):
    image = Image([BASE])
    files = oci(image)
    layer = f"blobs/sha256/{sha(BASE)}"
    config = f"blobs/sha256/{image.id}"
    other = tar(file("planted"))
    refused(write(changed(files, layer, other)), home, "image.digest")
    refused(write(changed(files, config, image.document + b" ")), home, "image.digest")
    # Padding behind the end of the tar is part of the blob too.
    refused(write(changed(files, layer, BASE + b"\0" * 512)), home, "image.digest")


def test_a_saved_layer_that_is_not_what_the_configuration_says_is_refused(write, home):
    image = Image([BASE])
    files = saved(image)
    layer = next(name for name in files if name.endswith("layer.tar"))
    refused(write(changed(files, layer, tar(file("planted")))), home, "image.digest")
    refused(write(changed(files, f"{image.id}.json", image.document + b" ")), home, "image.digest")


@pytest.mark.parametrize(
    "digest",
    ["sha256:../../../etc/passwd", "sha256:" + "g" * 64, "md5:" + "0" * 32, "../x", 7, None],
)
def test_digests_are_digests_and_no_paths(write, home, digest):
    files = oci(Image([BASE]))
    index = json.loads(files["index.json"])
    index["manifests"][0]["digest"] = digest
    refused(write(changed(files, "index.json", json.dumps(index).encode())), home, "image.digest")


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "way/passwd", "./../x"])
def test_names_in_a_manifest_reach_no_file_outside_the_archive(tmp_path, home, name):
    laid_out = tmp_path / "saved"
    laid_out.mkdir()
    (laid_out / "way").symlink_to("/etc")
    row = {"Config": name, "RepoTags": [], "Layers": [name]}
    (laid_out / "manifest.json").write_text(json.dumps([row]))
    assert "has no file" in refused(laid_out, home, "image.archive").message


@pytest.mark.parametrize("packing", ["", "gzip", "zstd"])
@pytest.mark.parametrize("cut", [10, 700, -700])
def test_a_truncated_layer_is_refused(write, home, packing, cut):
    image = Image([tar(file("big", os.urandom(3000)), file("more"))], packing=packing)
    files = oci(image)
    blob = image.packed(image.layers[0])
    name = f"blobs/sha256/{sha(blob)}"
    with pytest.raises(InvalidInputError) as caught:
        import_archive(write(changed(files, name, blob[:cut])), home)
    assert caught.value.code in {"image.unsafe", "image.digest"}


def test_a_truncated_archive_is_refused(write, home):
    data = tar_of(oci(Image([BASE])))
    for keep in (0, 100, 5000, len(data) // 2):
        with pytest.raises(InvalidInputError):
            import_archive(write(data[:keep]), home)
    whole = gzip.compress(data)
    refused(write(whole[: len(whole) // 2], "cut.tar.gz"), home, "image.archive")


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"\0" * 4096, os.urandom(4096), b"\x1f\x8b" * 50]
)
def test_what_is_no_archive_is_refused(write, home, content):
    refused(write(content), home, "image.archive")


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_a_decompression_bomb_stops_at_the_cap(write, home, packing):
    # The tar ends at once; what follows counts as well.
    image = Image([BASE + b"\0" * 50_000_000], packing=packing)
    limits = ImportLimits(archive_bytes=1_000_000)
    error = refused(write(oci(image)), home, "image.too_large", limits=limits)
    assert "larger" in error.message
    bomb = write(gzip.compress(b"\0" * 50_000_000), "bomb.tar.gz")
    refused(bomb, home, "image.archive", limits=limits)


@pytest.mark.parametrize(
    ("limits", "entries"),
    [
        (ImportLimits(entries=10), [file(f"f{n}") for n in range(11)]),
        (ImportLimits(tree_bytes=1000), [file("a", b"a" * 600), file("b", b"b" * 600)]),
    ],
)
def test_too_many_entries_or_bytes_stop_at_the_cap(write, home, limits, entries):
    refused(write(oci(Image([tar(*entries)]))), home, "image.too_large", limits=limits)


def test_a_header_that_claims_gigabytes_of_attributes_is_refused_at_once(write, home):
    entry = tarfile.TarInfo("pax")
    entry.type, entry.size = tarfile.XHDTYPE, 8 * 1024**3
    header = entry.tobuf(tarfile.GNU_FORMAT)
    layer = header + b"1" * 20_000_000
    refused(write(oci(Image([layer]))), home, "image.unsafe")
    refused(write(header + b"1" * 20_000_000), home, "image.archive")


def test_a_sparse_map_without_an_end_does_not_hang(write, home):
    headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "10"}
    entry = tarfile.TarInfo("s")
    entry.size, entry.pax_headers = 512, headers
    layer = entry.tobuf(tarfile.PAX_FORMAT) + b"999999\n" + b"1\n" * 252 + b"1"
    refused(write(oci(Image([layer]))), home, "image.unsafe")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("index.json", b"{"),
        ("index.json", b"[]"),
        ("index.json", b'{"manifests": {}}'),
        ("index.json", b'{"manifests": []}'),
        ("index.json", b"[" * 100_000),
        ("index.json", b"\xff\xfe"),
        ("index.json", b" " * (9 * 1024 * 1024)),
    ],
)
def test_broken_documents_are_refused(write, home, name, content):
    refused(write(changed(oci(Image([BASE])), name, content)), home, "image.archive")


@pytest.mark.parametrize(
    "config",
    [
        {"Env": "PATH=/bin", "User": 7},
        {"Env": [1]},
        {"Entrypoint": {"a": 1}},
        {"WorkingDir": "/a\0b"},
        {"Cmd": ["x"] * 5000},
    ],
)
def test_configurations_with_values_of_wrong_types_are_refused(write, home, config):
    refused(write(oci(Image([BASE], config))), home, "image.archive")


def test_an_index_that_contains_itself_ends(write, home):
    # A digest cannot contain itself, but many levels can be nested.
    inner = json.dumps({"manifests": []}).encode()
    files = {}
    for _ in range(10):
        files[f"blobs/sha256/{sha(inner)}"] = inner
        row = descriptor(inner, "application/vnd.oci.image.index.v1+json")
        inner = json.dumps({"manifests": [row, row]}).encode()
    refused(write({**files, "index.json": inner}), home, "image.archive")


def test_a_configuration_that_lists_other_layers_is_refused(write, home):
    image = Image([BASE])
    files = saved(image)
    row = json.loads(files["manifest.json"])[0]
    row["Layers"] = row["Layers"] * 2
    refused(
        write(changed(files, "manifest.json", json.dumps([row]).encode())), home, "image.archive"
    )


def test_a_full_disk_is_this_hosts_fault(write, home, monkeypatch):
    path = write(oci(Image([BASE])))

    def full(*_args, **_more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("qualityhub.engine.sandbox.treewriter.TreeWriter._write_file", full)
    with pytest.raises(MachineryError, match="No space left"):
        import_archive(path, home)


def test_progress_names_the_layers(write, home):
    told = []
    import_archive(write(oci(Image([BASE, BASE]))), home, told.append)
    assert "unpacking layer 1/2" in told
    assert "unpacking layer 2/2" in told


def test_hashes_of_the_tree_do_not_depend_on_how_it_was_packed(write, tmp_path):
    image = Image([BASE, tar(gone("opt/a"))])
    seen = set()
    for number, (layout, packing) in enumerate([(oci, "gzip"), (oci, "zstd"), (saved, "")]):
        image.packing = packing
        path = import_archive(write(layout(image)), tmp_path / str(number)).tree.path
        state = hashlib.sha256()
        for item in sorted(path.rglob("*")):
            info = item.lstat()
            state.update(repr((str(item.relative_to(path)), info.st_mode, info.st_uid)).encode())
            state.update(item.read_bytes() if item.is_file() else b"")
        seen.add(state.hexdigest())
    assert len(seen) == 1


def test_a_layer_may_be_empty(write, home):
    empty = io.BytesIO()
    tarfile.open(fileobj=empty, mode="w").close()
    assert import_archive(write(oci(Image([empty.getvalue()]))), home).new
