"""The rehearsal base: the host's ``/usr``, a generated ``/etc``, and nothing else of the host."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
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

_Plan = dict[str, bytes | str | None]
# By path below ``/etc``: the content of a file, where a link leads, None for a folder.

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


def generated_etc(home: Path, *, network: bool, owner: int, hostname: str = "sandbox") -> Path:
    """Return a folder with the generated ``/etc``, made once and named by its content.

    Args:
        home: Our data folder.
        network: Whether name resolution of the host is copied (build sandboxes only).
        owner: Host id that owns it, so that it belongs to root inside; negative for our own.
        hostname: Of the world, which can then resolve its own name.
    """
    store = home / "rehearsal"
    wanted = _planned(network=network)
    if not network and hostname.replace("-", "").replace(".", "").isalnum():
        for name in ("hosts", "hostname"):
            wanted[name] = _WRITTEN[name].replace("sandbox", hostname).encode("ascii", "ignore")
    final = store / _name(wanted, owner)
    if final.exists():
        return final
    store.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=store, prefix=".new-") as folder:
        place = Path(folder) / "etc"
        place.mkdir(mode=0o755)
        _write(wanted, place)
        if owner >= 0:
            _give(place, owner)
        try:
            place.rename(final)
        except OSError:  # another process was first: the content is the same
            if not final.exists():
                raise
    return final


def _planned(*, network: bool) -> _Plan:
    plan: _Plan = {name: text.encode("ascii") for name, text in _WRITTEN.items()}
    for name in _COPIED:
        _copy(Path("/etc") / name, name, plan)
    plan["localtime"] = "/usr/share/zoneinfo/Etc/UTC"
    plan["mtab"] = "/proc/self/mounts"
    plan["os-release"] = "/usr/lib/os-release"
    bundle = next((Path(item) for item in _CERTIFICATES if Path(item).is_file()), None)
    if bundle is not None:
        content = bundle.read_bytes()
        plan["ssl/certs/ca-certificates.crt"] = plan["pki/tls/certs/ca-bundle.crt"] = content
        plan["ssl/cert.pem"] = "/etc/ssl/certs/ca-certificates.crt"
    if network:
        _copy(Path("/etc/resolv.conf").resolve(), "resolv.conf", plan)
        _copy(Path("/etc/hosts"), "hosts", plan)
    return plan


def _copy(source: Path, target: str, plan: _Plan) -> None:
    try:
        if source.is_symlink():
            plan[target] = str(source.readlink())
        elif source.is_dir():
            plan[target] = None
            for item in source.iterdir():
                _copy(item, f"{target}/{item.name}", plan)
        elif source.is_file() and source.stat().st_size <= _LARGEST_COPIED:
            plan[target] = source.read_bytes()
    except PermissionError:
        return


def _name(plan: _Plan, owner: int) -> str:
    digest = hashlib.sha256(f"etc/2 {owner}".encode())
    for path, content in sorted(plan.items()):
        digest.update(os.fsencode(path) + b"\0")
        if isinstance(content, str):
            digest.update(b"l" + os.fsencode(content) + b"\0")
        elif content is not None:
            digest.update(b"f" + hashlib.sha256(content).digest())
    return digest.hexdigest()[:32]


def _write(plan: _Plan, place: Path) -> None:
    for name, content in plan.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.mkdir(exist_ok=True)
        elif isinstance(content, str):
            path.symlink_to(content)
        else:
            path.write_bytes(content)
            path.chmod(0o644)


def _give(place: Path, owner: int) -> None:
    for here, folders, files in os.walk(place):
        for name in (*folders, *files):
            os.chown(Path(here) / name, owner, owner, follow_symlinks=False)
    os.chown(place, owner, owner)
