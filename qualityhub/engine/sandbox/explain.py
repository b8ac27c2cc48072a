"""Why a provider cannot run here, or only softly, and what to do about it, for operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from qualityhub.engine.sandbox.hostfacts import HostFacts
from qualityhub.engine.sandbox.port import Capability

LIMITS = {
    "wall_s": "wall clock",
    "cpu_s": "CPU seconds",
    "memory_bytes": "memory",
    "pids": "processes",
    "disk_bytes": "disk",
    "files": "number of files",
    "open_files": "open files",
    "output_bytes": "output",
    "system_calls": "system calls",
    "read_only": "read-only folders",
}
"""What an operator calls each limit."""

_INSTALL = ("not installed", "needs Linux", "no system call table")
_BY_CONTAINER = (
    "or mount the engine's socket into this container, set DOCKER_HOST and use --sandbox container"
)


@dataclass(frozen=True, slots=True)
class _Switch:
    """A setting of the kernel that forbids what bubblewrap needs."""

    off: Callable[[HostFacts], bool]
    reason: str
    remedy: str


_SWITCHES = (
    _Switch(
        lambda host: host.namespaces == 0,
        "this host forbids user namespaces (user.max_user_namespaces is 0)",
        "sysctl -w user.max_user_namespaces=15000, or use --sandbox container",
    ),
    _Switch(
        lambda host: host.uid != 0 and not host.unprivileged,
        "this host forbids user namespaces to ordinary users "
        "(kernel.unprivileged_userns_clone is 0)",
        "sysctl -w kernel.unprivileged_userns_clone=1, or use --sandbox container",
    ),
    _Switch(
        lambda host: host.uid != 0 and host.restricted and not host.container,
        "AppArmor takes the rights of ordinary users' namespaces away "
        "(kernel.apparmor_restrict_unprivileged_userns is 1)",
        "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or give bubblewrap an AppArmor "
        "profile that allows userns, or use --sandbox container",
    ),
)


def explained(seen: Capability, host: HostFacts) -> Capability:
    """Return what bubblewrap can do here with the host's own reasons; others say theirs themselves.

    Args:
        seen: As the provider found it by trying.
        host: Where it was tried.
    """
    if seen.provider != "bwrap":
        return seen
    if not seen.usable:
        reason, remedy = _unusable(seen, host)
    else:
        reason, remedy = _limited(seen, host)
    return replace(seen, reason=reason, remedy=remedy)


def limits_in_words(seen: Capability) -> str:
    """Return which limits are hard, soft or missing, e.g. ``hard: memory, disk; soft: output``."""
    parts = []
    for kind, word in (("hard", "hard"), ("soft", "soft (sampled)"), ("none", "not limited")):
        names = [LIMITS.get(name, name) for name, how in seen.limits.items() if how == kind]
        if names:
            parts.append(f"{word}: {', '.join(names)}")
    return "; ".join(parts)


def _unusable(seen: Capability, host: HostFacts) -> tuple[str, str]:
    if any(word in seen.reason for word in _INSTALL):
        return seen.reason, seen.remedy
    said = f" [{seen.reason}]"
    for switch in _SWITCHES:
        if switch.off(host):
            return switch.reason + said, switch.remedy
    if host.container:
        where = f"this process runs inside a container of {host.container}"
        if host.uid == 0:
            return (
                f"{where} that may not make namespaces{said}",
                f"{_start_with(host, 'SYS_ADMIN')}, {_BY_CONTAINER}",
            )
        return (
            f"{where} that may not make namespaces of its own or mount /proc in them{said}",
            f"{_start_with(host, '')}, {_BY_CONTAINER}",
        )
    return seen.reason, seen.remedy or "use --sandbox container"


def _start_with(host: HostFacts, capability: str) -> str:
    if host.container == "Kubernetes":
        more = f", capabilities.add: [{capability}]" if capability else ""
        return (
            f"give its securityContext procMount: Unmasked, seccompProfile.type: Unconfined{more}"
        )
    unmask = "unmask=ALL" if host.container == "Podman" else "systempaths=unconfined"
    if capability:
        return f"start it with --cap-add {capability} --security-opt {unmask}"
    return f"start it with --security-opt seccomp=unconfined --security-opt {unmask}"


def _limited(seen: Capability, host: HostFacts) -> tuple[str, str]:
    notes, remedies = [], []
    soft = [LIMITS[name] for name in ("memory_bytes", "pids") if seen.limits.get(name) == "soft"]
    if soft:
        what = " and ".join(soft)
        if host.container:
            why = f"no control group to write to in this container of {host.container}"
            remedies.append(
                "start the container with a writable /sys/fs/cgroup (--privileged, or for "
                "Kubernetes a node where workers run outside of pods)"
            )
        elif host.cgroup_read_only:
            why = "no control group to write to: /sys/fs/cgroup is mounted read-only"
            remedies.append("mount /sys/fs/cgroup writable")
        else:
            why = "no control group to write to: none was delegated to this user"
            remedies.append(
                "start it by systemd-run --user --scope -p Delegate=yes, or as a service with "
                "Delegate=yes"
            )
        notes.append(f"{why}, so {what} are limited by sampling and rlimits")
    if not seen.ownership:
        missing, remedy = _ids(host)
        notes.append(f"{missing}, so one user id is mapped and file ownership inside is not real")
        remedies.append(remedy)
    return "; ".join(notes), "; ".join(remedies)


def _ids(host: HostFacts) -> tuple[str, str]:
    give = (
        f"usermod --add-subuids 200000-265535 --add-subgids 200000-265535 {host.user} (a range of "
        "65,536 that nobody else has)"
    )
    if host.uid == 0:
        return (
            "this root has no range of user ids to give",
            "run it on a host with its own user ids",
        )
    if not host.map_tools and not host.subordinate:
        return (
            f"newuidmap is not installed and {host.user} has no range in /etc/subuid",
            f"install uidmap (shadow-utils on Fedora), then {give}",
        )
    if not host.map_tools:
        return "newuidmap is not installed", "install uidmap (shadow-utils on Fedora)"
    return f"{host.user} has no range in /etc/subuid and /etc/subgid", give
