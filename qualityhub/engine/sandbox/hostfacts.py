"""What of this host decides which sandbox it can run, as ``/proc`` and ``/etc`` say."""

from __future__ import annotations

import getpass
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

_WORDS = (
    ("docker", "Docker"),
    ("libpod", "Podman"),
    ("containerd", "a container engine"),
    ("/lxc", "LXC"),
)


_LAYERED = frozenset({"overlay", "fuse.fuse-overlayfs", "fuse-overlayfs", "aufs", "btrfs", "zfs"})


@dataclass(frozen=True, slots=True)
class HostFacts:
    """One host as this process sees it.

    Attributes:
        uid: Effective user id.
        user: Its name, or its number where it has none.
        container: Whose container this process runs in; empty for none.
        namespaces: How many user namespaces may exist; None where nothing limits them.
        unprivileged: Whether others than root may make one, as far as the kernel's switch says.
        restricted: Whether AppArmor takes their rights away from ordinary users' namespaces.
        cgroup_read_only: Whether every control group file system is mounted read-only.
        map_tools: Whether ``newuidmap`` and ``newgidmap`` are installed.
        subordinate: Whether this user has a range in ``/etc/subuid`` and ``/etc/subgid``.
    """

    uid: int
    user: str
    container: str = ""
    namespaces: int | None = None
    unprivileged: bool = True
    restricted: bool = False
    cgroup_read_only: bool = False
    map_tools: bool = True
    subordinate: bool = True


def look_at_host(root: Path = Path("/"), uid: int | None = None) -> HostFacts:
    """Return the facts.

    Args:
        root: Where ``/proc`` and ``/etc`` lie.
        uid: Effective user id; this process's where it is left out.
    """
    uid = os.geteuid() if uid is None else uid
    user = _user(uid)
    switch = _number(root / "proc/sys/kernel/unprivileged_userns_clone")
    return HostFacts(
        uid=uid,
        user=user,
        container=_container(root),
        namespaces=_number(root / "proc/sys/user/max_user_namespaces"),
        unprivileged=switch != 0,
        restricted=_number(root / "proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1,
        cgroup_read_only=_cgroup_read_only(_text(root / "proc/self/mountinfo")),
        map_tools=all(shutil.which(name) for name in ("newuidmap", "newgidmap")),
        subordinate=all(
            _has_range(_text(root / "etc" / name), user, uid) for name in ("subuid", "subgid")
        ),
    )


def _user(uid: int) -> str:
    try:
        return getpass.getuser() if uid == os.geteuid() else str(uid)
    except (KeyError, OSError):
        return str(uid)


def _container(root: Path) -> str:
    # A host can be made from an image and keep its marker: only a layered root tells.
    first = _text(root / "proc/1/cgroup")
    layered = _root_kind(_text(root / "proc/self/mountinfo")) in _LAYERED
    if "kubepods" in first or (layered and _exists(root / "var/run/secrets/kubernetes.io")):
        return "Kubernetes"
    for marker, name in ((root / "run/.containerenv", "Podman"), (root / ".dockerenv", "Docker")):
        if layered and _exists(marker):
            return name
    return next((name for word, name in _WORDS if word in first), "")


def _root_kind(mounts: str) -> str:
    """Return the type of the file system that is ``/``: the last one mounted there."""
    kind = ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        if left.split(" ")[4:5] == ["/"]:
            kind = right.split(" ")[0]
    return kind


def _cgroup_read_only(mounts: str) -> bool:
    seen = []
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        if right.split(" ")[0] in {"cgroup", "cgroup2"}:
            seen.append("ro" in left.split(" ")[5].split(","))
    return bool(seen) and all(seen)


def _has_range(text: str, user: str, uid: int) -> bool:
    rows = [line.split(":") for line in text.splitlines()]
    return any(len(row) == 3 and row[0] in {user, str(uid)} for row in rows)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _number(path: Path) -> int | None:
    try:
        return int(_text(path))
    except ValueError:
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
