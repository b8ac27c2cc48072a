"""The rehearsal base: the host's ``/usr``, a generated ``/etc``, and nothing else of the host."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import shutil
import tempfile
from pathlib import Path

_USR_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_COPIED = (
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "alternatives",
    "protocols",
    "services",
    "mime.types",
    "debian_version",
    "bash.bashrc",
    "profile",
    "ssl/openssl.cnf",
    "pki/tls/openssl.cnf",
    "crypto-policies",
)
_CERTIFICATES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
_LARGEST_COPIED = 8 * 1024 * 1024
_WRITTEN = {
    "passwd": (
        "root:x:0:0:root:/root:/bin/sh\n"
        "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    ),
    "group": "root:x:0:\ndaemon:x:1:\ntty:x:5:\nnogroup:x:65534:\n",
    "shadow": "root:*:19000:0:99999:7:::\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost\n",
    "hostname": "sandbox\n",
    "nsswitch.conf": (
        "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\n"
        "protocols: files\n"
    ),
    "host.conf": "multi on\n",
    "shells": "/bin/sh\n/bin/bash\n",
    "timezone": "Etc/UTC\n",
}

FOLDERS: tuple[tuple[str, int], ...] = (
    ("/usr", 0o755),
    ("/etc", 0o755),
    ("/proc", 0o755),
    ("/dev", 0o755),
    ("/tmp", 0o1777),  # noqa: S108 - a folder of the world
    ("/var", 0o755),
    ("/var/tmp", 0o1777),  # noqa: S108 - a folder of the world
    ("/var/log", 0o755),
    ("/var/lib", 0o755),
    ("/run", 0o755),
    ("/home", 0o755),
    # Others may pass through, so that an interpreter installed below it can be reached.
    ("/root", 0o711),
    ("/opt", 0o755),
    ("/srv", 0o755),
    ("/mnt", 0o755),
)
"""Folders that a world without an image starts with, and their modes."""

IMAGE_FOLDERS: tuple[tuple[str, int], ...] = (
    ("/proc", 0o755),
    ("/dev", 0o755),
    ("/tmp", 0o1777),  # noqa: S108 - a folder of the world
)
"""Folders that every image must have for the sandbox to mount on."""


def usr_links() -> tuple[list[tuple[str, str]], list[Path]]:
    """Return the links of ``/`` into ``/usr`` and those folders that are no links here."""
    links: list[tuple[str, str]] = []
    folders: list[Path] = []
    for name in _USR_LINKS:
        path = Path(name)
        if path.is_symlink():
            links.append((name, str(path.readlink())))
        elif path.is_dir():
            folders.append(path)
    return links, folders


@functools.cache
def facts() -> str:
    """Return what stands for the rehearsal base in a digest: distribution, C library, processor."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {}
    return json.dumps(
        {
            "distribution": release.get("ID", "linux"),
            "release": release.get("VERSION_ID", ""),
            "libc": " ".join(platform.libc_ver()),
            "machine": platform.machine(),
        },
        sort_keys=True,
    )


def generated_etc(home: Path, *, network: bool, owner: int) -> Path:
    """Return a folder with the generated ``/etc``, made once and named by its content.

    Args:
        home: Our data folder.
        network: Whether name resolution of the host is copied (build sandboxes only).
        owner: Host id that owns it, so that it belongs to root inside; negative for our own.
    """
    store = home / "rehearsal"
    store.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=store, prefix=".new-") as folder:
        place = Path(folder) / "etc"
        place.mkdir(mode=0o755)
        _fill(place, network=network)
        name = _name(place, owner)
        final = store / name
        if not final.exists():
            if owner >= 0:
                _give(place, owner)
            try:
                place.rename(final)
            except OSError:  # another process was first: the content is the same
                if not final.exists():
                    raise
    return final


def _fill(place: Path, *, network: bool) -> None:
    for name, text in _WRITTEN.items():
        (place / name).write_text(text, encoding="ascii")
    for name in _COPIED:
        _copy(Path("/etc") / name, place / name)
    (place / "localtime").symlink_to("/usr/share/zoneinfo/Etc/UTC")
    (place / "mtab").symlink_to("/proc/self/mounts")
    (place / "os-release").symlink_to("/usr/lib/os-release")
    bundle = next((Path(item) for item in _CERTIFICATES if Path(item).is_file()), None)
    if bundle is not None:
        for target in ("ssl/certs/ca-certificates.crt", "pki/tls/certs/ca-bundle.crt"):
            path = place / target
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(bundle, path)
        (place / "ssl/cert.pem").symlink_to("/etc/ssl/certs/ca-certificates.crt")
    if network:
        _copy(Path("/etc/resolv.conf").resolve(), place / "resolv.conf")
        _copy(Path("/etc/hosts"), place / "hosts")


def _copy(source: Path, target: Path) -> None:
    try:
        if source.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source.readlink())
        elif source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            for item in sorted(source.iterdir()):
                _copy(item, target / item.name)
        elif source.is_file() and source.stat().st_size <= _LARGEST_COPIED:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            target.chmod(0o644)
    except PermissionError:
        return


def _name(place: Path, owner: int) -> str:
    digest = hashlib.sha256(f"etc/1 {owner}".encode())
    for here, folders, files in os.walk(place):
        folders.sort()
        for name in sorted((*files, *folders)):
            path = Path(here) / name
            digest.update(str(path.relative_to(place)).encode() + b"\0")
            if path.is_symlink():
                digest.update(b"l" + os.fsencode(path.readlink()) + b"\0")
            elif path.is_file():
                digest.update(b"f" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:32]


def _give(place: Path, owner: int) -> None:
    for here, folders, files in os.walk(place):
        for name in (*folders, *files):
            os.chown(Path(here) / name, owner, owner, follow_symlinks=False)
    os.chown(place, owner, owner)
