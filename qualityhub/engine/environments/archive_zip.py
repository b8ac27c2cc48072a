"""Unpack zip files: what their directory claims is bounded before it is believed."""

from __future__ import annotations

import os
import stat
import struct
import zipfile
from typing import TYPE_CHECKING, BinaryIO

from qualityhub.engine.environments.archive_target import refuse
from qualityhub.engine.environments.files import MIB, shown

if TYPE_CHECKING:
    from qualityhub.engine.environments.archive_target import Target

_END = b"PK\x05\x06"
_END64_LOCATOR = b"PK\x06\x07"
_END_SIZE = 22
_DIRECTORY_BYTES = 32 * MIB
_TARGET_BYTES = 4096
_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})


def unpack_zip(stream: BinaryIO, target: Target) -> None:
    """Put every entry of a zip file into the target.

    Raises:
        InvalidInputError: ``archive.*``.
    """
    _check_directory(stream)
    with zipfile.ZipFile(stream) as archive:
        for info in archive.infolist():
            _unpack_one(archive, info, target)


def _unpack_one(archive: zipfile.ZipFile, info: zipfile.ZipInfo, target: Target) -> None:
    # The reader cuts a name at a NUL: judge what is really written there.
    name = info.orig_filename
    mode = info.external_attr >> 16
    if info.flag_bits & 0x1:
        raise refuse("encrypted", f"{shown(name)} is encrypted.", "Pack without a password.")
    if info.compress_type not in _METHODS:
        raise refuse(
            "unsupported_compression",
            f"{shown(name)} is compressed in a way that is not supported.",
            "Use deflate, which every zip program does by default.",
        )
    if name.endswith("/") or stat.S_ISDIR(mode):
        target.add_folder(name)
    elif stat.S_ISLNK(mode):
        if info.file_size > _TARGET_BYTES:
            raise refuse("link_escape", f"The link {shown(name)} has a very long target.")
        with archive.open(info) as content:
            target.add_link(name, content.read(_TARGET_BYTES).decode())
    elif stat.S_IFMT(mode) in {0, stat.S_IFREG}:
        with archive.open(info) as content:
            target.add_file(name, content, info.file_size, mode)
    else:
        raise refuse(
            "special_file",
            f"The archive holds a device, pipe or socket: {shown(name)}.",
            "Archives hold files, folders and links inside the tree.",
        )


def _check_directory(stream: BinaryIO) -> None:
    """Refuse a directory that would not fit into memory, before the zip reader loads it."""
    size = stream.seek(0, os.SEEK_END)
    start = max(0, size - _END_SIZE - 65_535)
    stream.seek(start)
    tail = stream.read(size - start)
    stream.seek(0)
    place = tail.rfind(_END)
    if place < 0 or len(tail) - place < _END_SIZE:
        raise refuse("broken", "The zip file has no end record.", "Make the archive again.")
    (directory,) = struct.unpack_from("<L", tail, place + 12)
    zip64 = place >= 20 and tail[place - 20 : place - 16] == _END64_LOCATOR
    if zip64 or directory > _DIRECTORY_BYTES:
        raise refuse(
            "too_large",
            "The zip file's directory is very large.",
            "Send a .tar.gz for more than 65,535 files or 4 GiB.",
        )
