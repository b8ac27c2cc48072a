"""Archives, honest and hostile."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qualityhub.engine.environments.archives import ArchiveLimits, extract_archive, pack_tree
from qualityhub.engine.environments.files import walk
from qualityhub.engine.environments.reader import read_environment
from qualityhub.engine.errors import ConflictError, InvalidInputError

SMALL = ArchiveLimits(file_bytes=10_000, total_bytes=30_000, entries=20, ratio=20, ratio_from=5_000)


def tar_of(*members, compress=True):
    """Make a tar from (name, content or TarInfo changes)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz" if compress else "w") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
            else:
                for key, value in content.items():
                    setattr(info, key, value)
                archive.addfile(info)
    out.seek(0)
    return out


def zip_of(*members, method=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content, *mode in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            info.external_attr = (mode[0] if mode else 0o100644) << 16
            archive.writestr(info, content)
    out.seek(0)
    return out


@pytest.fixture
def place(tmp_path):
    return tmp_path / "store" / "unpacked"


@pytest.fixture
def refused(place):
    def extract(data, limits=SMALL):
        with pytest.raises(InvalidInputError) as caught:
            extract_archive(data, place, limits=limits)
        assert not place.exists()
        assert list(place.parent.iterdir()) == []
        assert caught.value.message.isprintable()
        return caught.value.code

    return extract


@pytest.mark.parametrize("name", ["scorer", "harbor-set", "humaneval"])
def test_a_packed_tree_unpacks_to_the_same_environment(sample, name, place):
    root = sample(name)
    (root / "__pycache__").mkdir()
    (root / "__pycache__" / "x.pyc").write_bytes(b"\0")
    packed = io.BytesIO()
    pack_tree(root, packed)
    extract_archive(packed, place)
    assert walk(place) == walk(root)
    before, after = read_environment(str(root)), read_environment(str(place))
    assert (after.digest, after.requests) == (before.digest, before.requests)
    assert not (place / "__pycache__").exists()


def test_equal_trees_give_equal_bytes(sample):
    root = sample("scorer")
    first, second = io.BytesIO(), io.BytesIO()
    pack_tree(root, first)
    os.utime(root / "scorer.py", (0, 0))
    (root / "dataset.jsonl").touch()
    pack_tree(root, second)
    assert first.getvalue() == second.getvalue()


def test_only_named_files_are_packed_with_the_manifest(sample, place):
    root = sample("scorer")
    packed = io.BytesIO()
    pack_tree(root, packed, files=[entry for entry in walk(root) if entry.path == "scorer.py"])
    extract_archive(packed, place)
    assert sorted(path.name for path in place.iterdir()) == ["qualityhub.toml", "scorer.py"]


@pytest.mark.parametrize(
    "data",
    [
        tar_of(("a/run.sh", b"x"), ("./b", b"y"), compress=False),
        tar_of(("a", {"type": tarfile.DIRTYPE}), ("a/run.sh", b"x"), ("b", b"y")),
        zip_of(("a/", b"", 0o40755), ("a/run.sh", b"x"), ("b", b"y")),
        zip_of(("a/run.sh", b"x"), ("b", b"y"), method=zipfile.ZIP_STORED),
    ],
)
def test_every_known_kind_is_told_by_content(data, place):
    extract_archive(data, place)
    assert (place / "a/run.sh").read_bytes() == b"x"
    assert (place / "b").read_bytes() == b"y"


def test_execute_bits_survive_and_no_other_mode_does(place):
    data = tar_of(("run.sh", {"mode": 0o6777}), ("plain", {"mode": 0o600}))
    extract_archive(data, place)
    assert (place / "run.sh").stat().st_mode & 0o7777 == 0o755
    assert (place / "plain").stat().st_mode & 0o7777 == 0o644


def test_links_inside_the_tree_survive(place):
    link = {"type": tarfile.SYMTYPE, "linkname": "../a/x"}
    hard = {"type": tarfile.LNKTYPE, "linkname": "a/x"}
    extract_archive(tar_of(("a/x", b"1"), ("b/soft", link), ("hard", hard)), place)
    assert (place / "b/soft").readlink().as_posix() == "../a/x"
    assert (place / "hard").read_bytes() == b"1"
    assert (place / "hard").stat().st_nlink == 1


def test_a_link_in_a_zip_is_a_link(place):
    extract_archive(zip_of(("a", b"1"), ("b", b"a", 0o120777)), place)
    assert (place / "b").readlink().as_posix() == "a"


@pytest.mark.parametrize("make", [tar_of, zip_of])
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("../evil", "archive.path_escape"),
        ("a/../../evil", "archive.path_escape"),
        ("a/..", "archive.path_escape"),
        ("/etc/evil", "archive.absolute_path"),
        ("C:/evil", "archive.absolute_path"),
        ("..\\evil", "archive.absolute_path"),
        ("x" * 300, "archive.bad_name"),
        ("d/" * 70 + "x", "archive.bad_name"),
        (".", "archive.bad_name"),
    ],
)
def test_a_name_that_leaves_the_folder_is_refused(refused, make, name, code):
    assert refused(make(("ok", b"1"), (name, b"2"))) == code


def test_a_nul_in_a_name_is_refused(refused):
    data = zip_of(("abc_evil", b"1")).getvalue().replace(b"abc_evil", b"abc\0evil")
    assert refused(io.BytesIO(data)) == "archive.bad_name"


def test_a_file_without_a_name_is_refused(refused):
    nameless = zip_of(("q", b"1")).getvalue().replace(b"q", b"\0")
    assert refused(io.BytesIO(nameless)) == "archive.bad_name"


def test_a_name_that_is_not_utf8_is_refused(refused):
    data = tar_of(("bad-XX", b"1"), compress=False).getvalue()
    broken = bytearray(data.replace(b"bad-XX", b"bad-\xff\xfe"))
    header = bytes(broken[:148]) + b" " * 8 + bytes(broken[156:512])
    broken[148:156] = f"{sum(header):06o}\0 ".encode()
    assert refused(io.BytesIO(bytes(broken))) == "archive.bad_name"


@pytest.mark.parametrize(
    "target", ["/etc/passwd", "../../etc/passwd", "a/../../x", "..", "../unpacked-other"]
)
def test_a_link_out_of_the_tree_is_refused(refused, target):
    link = {"type": tarfile.SYMTYPE, "linkname": target}
    assert refused(tar_of(("a/x", b"1"), ("link", link))) == "archive.link_escape"
    assert (
        refused(zip_of(("a/x", b"1"), ("link", target.encode(), 0o120777))) == "archive.link_escape"
    )


def test_a_chain_of_links_out_of_the_tree_is_refused(refused):
    up = {"type": tarfile.SYMTYPE, "linkname": ".."}
    out = {"type": tarfile.SYMTYPE, "linkname": "sub/up/../x"}
    assert (
        refused(tar_of(("sub/file", b"1"), ("sub/up", up), ("out", out))) == "archive.link_escape"
    )


def test_nothing_is_written_through_a_link(refused, tmp_path):
    link = {"type": tarfile.SYMTYPE, "linkname": str(tmp_path)}
    inner = {"type": tarfile.SYMTYPE, "linkname": "real"}
    assert refused(tar_of(("door", link), ("door/evil", b"1"))) == "archive.link_escape"
    assert (
        refused(tar_of(("real/x", b"1"), ("door", inner), ("door/evil", b"1")))
        == "archive.duplicate_name"
    )
    assert not (tmp_path / "evil").exists()


def test_a_hard_link_to_nothing_in_the_archive_is_refused(refused):
    link = {"type": tarfile.LNKTYPE, "linkname": "ghost"}
    assert refused(tar_of(("a", b"1"), ("b", link))) == "archive.link_escape"
    link = {"type": tarfile.LNKTYPE, "linkname": "/etc/passwd"}
    assert refused(tar_of(("a", b"1"), ("b", link))) == "archive.absolute_path"


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_devices_and_pipes_are_refused(refused, kind):
    assert refused(tar_of(("a", b"1"), ("dev", {"type": kind}))) == "archive.special_file"


def test_a_pipe_in_a_zip_is_refused(refused):
    assert refused(zip_of(("a", b"1"), ("pipe", b"", 0o010644))) == "archive.special_file"


@pytest.mark.parametrize("make", [tar_of, zip_of])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_the_same_name_twice_is_refused(refused, make):
    assert refused(make(("a", b"1"), ("a", b"2"))) == "archive.duplicate_name"
    assert refused(make(("a", b"1"), ("./a", b"2"))) == "archive.duplicate_name"
    assert refused(make(("a", b"1"), ("a/b", b"2"))) == "archive.duplicate_name"


@pytest.mark.parametrize(
    ("one", "two"),
    [("Readme", "README"), ("A/x", "a/y"), ("caf\u00e9", "cafe\u0301"), ("stra\u00dfe", "STRASSE")],
)
def test_names_that_are_one_elsewhere_are_refused(refused, one, two):
    assert refused(tar_of((one, b"1"), (two, b"2"))) == "archive.case_collision"


@pytest.mark.parametrize("make", [tar_of, zip_of])
def test_bombs_stop_early(refused, make):
    noise = os.urandom(9_000)
    assert refused(make(("zeros", b"\0" * 9_000))) == "archive.bomb"
    assert refused(make(("big", os.urandom(10_001)))) == "archive.too_large"
    assert refused(make(*((f"f{i}", noise) for i in range(4)))) in {
        "archive.too_large",
        "archive.bomb",
    }
    assert refused(make(*((f"f{i}", b"") for i in range(21)))) == "archive.too_large"


def test_a_zip_that_lies_about_sizes_is_refused(refused):
    data = bytearray(zip_of(("a", os.urandom(20_000)), method=zipfile.ZIP_STORED).getvalue())
    central = data.rfind(b"PK\x01\x02")
    data[central + 24 : central + 28] = (5).to_bytes(4, "little")
    assert refused(io.BytesIO(bytes(data))) in {"archive.broken", "archive.too_large"}


def test_a_header_of_gigabytes_is_not_taken_into_memory(refused):
    info = tarfile.TarInfo("././@PaxHeader")
    info.type = tarfile.XHDTYPE
    info.size = (1 << 33) - 512
    packed = gzip.compress(info.tobuf(tarfile.USTAR_FORMAT) + b"\0" * 20_000_000)
    assert refused(io.BytesIO(packed), ArchiveLimits()) == "archive.too_large"


def test_a_zip_with_an_endless_directory_is_refused_before_it_is_loaded(refused):
    data = bytearray(zip_of(("a", b"1")).getvalue())
    data[-10:-6] = (0xFFFFFFF0).to_bytes(4, "little")
    assert refused(io.BytesIO(bytes(data))) == "archive.too_large"
    locator = b"PK\x06\x07" + b"\0" * 16
    data = zip_of(("a", b"1")).getvalue()
    assert refused(io.BytesIO(data[:-22] + locator + data[-22:])) == "archive.too_large"


def test_an_encrypted_zip_is_refused(refused):
    data = bytearray(zip_of(("a", b"1")).getvalue())
    data[data.find(b"PK\x01\x02") + 8] |= 1
    data[6] |= 1
    assert refused(io.BytesIO(bytes(data))) == "archive.encrypted"


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_compression_with_large_tables_is_refused(refused, method):
    assert refused(zip_of(("a", b"1"), method=method)) == "archive.unsupported_compression"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "archive.unknown_format"),
        (b"plain text", "archive.unknown_format"),
        (b"\x28\xb5\x2f\xfd" + b"\0" * 100, "archive.unknown_format"),
        (b"\x1f\x8b garbage", "archive.broken"),
        (gzip.compress(b"no tar in here" * 100), "archive.broken"),
        (tar_of(("a", b"1" * 5000)).getvalue()[:-40], "archive.broken"),
        (tar_of(("a", b"1" * 5000), compress=False).getvalue()[:2000], "archive.broken"),
        (b"PK\x03\x04" + b"\0" * 100, "archive.broken"),
        (zip_of(("a", b"1" * 500)).getvalue()[:-30], "archive.broken"),
        (zip_of(), "archive.empty"),
        (tar_of(), "archive.empty"),
        (tar_of(("a", {"type": tarfile.DIRTYPE})), "archive.empty"),
    ],
)
def test_what_is_no_whole_archive_is_refused(refused, data, code):
    assert refused(io.BytesIO(data) if isinstance(data, bytes) else data) == code


def test_content_that_fails_its_checksum_is_refused(refused):
    data = bytearray(zip_of(("a", b"1234567890"), method=zipfile.ZIP_STORED).getvalue())
    data[data.find(b"1234567890")] ^= 1
    assert refused(io.BytesIO(bytes(data))) == "archive.broken"


def test_a_folder_that_is_already_there_stays_as_it_is(place):
    place.mkdir(parents=True)
    (place / "mine").write_text("x")
    with pytest.raises(ConflictError) as caught:
        extract_archive(tar_of(("a", b"1")), place)
    assert caught.value.code == "archive.exists"
    assert [path.name for path in place.iterdir()] == ["mine"]


def test_a_file_on_disk_is_unpacked_too(tmp_path, place):
    file = tmp_path / "upload"
    file.write_bytes(zip_of(("a", b"1")).getvalue())
    extract_archive(file, place)
    assert (place / "a").read_bytes() == b"1"
    assert [path.name for path in place.parent.iterdir()] == ["unpacked"]


BASES = [zip_of(("a/b", b"1" * 50), ("l", b"a", 0o120777)).getvalue(), tar_of(("a/b", b"1" * 50), ("c", b"2")).getvalue(), tar_of(("a/b", b"1" * 50), ("l", {"type": tarfile.SYMTYPE, "linkname": "a"}), compress=False).getvalue()]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(BASES),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=6),
)
def test_damage_gives_a_refusal_or_a_contained_tree_and_never_a_traceback(
    tmp_path_factory, base, damage
):
    data = bytearray(base)
    for index, value in damage:
        data[index % len(data)] = value
    folder = tmp_path_factory.mktemp("fuzz")
    upload = tmp_path_factory.mktemp("upload") / "file"
    upload.write_bytes(data)
    code = ""
    try:
        extract_archive(upload, folder / "out", limits=SMALL)
    except InvalidInputError as error:
        code = error.code
    if code:
        assert code.startswith("archive.")
        assert list(folder.iterdir()) == []
    else:
        walk(folder / "out")
