"""The filter of system calls that foreign code runs under, packed by hand.

It refuses what reaches the kernel beyond an ordinary program's needs: the key ring of the caller,
mounts and new namespaces, kernel modules, tracing of the kernel, and sockets of families that are
not separated by network namespaces. ``ptrace`` stays: debuggers are legitimate inside tasks, and
the process id namespace bounds what it can reach.

``clone3`` hides its flags behind a pointer, so it answers "not implemented" and the C library
falls back to ``clone``, whose flags are inspected.
"""

from __future__ import annotations

import errno
import json
import platform
import struct

from qualityhub.engine.errors import SandboxUnavailableError

_LOAD = 0x20  # ld [k]
_EQUAL = 0x15  # jeq #k
_AT_LEAST = 0x35  # jge #k
_ANY_BIT = 0x45  # jset #k
_RETURN = 0x06
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000

_NR, _ARCH, _ARG0, _ARG1 = 0, 4, 16, 24

# NEWTIME NEWNS NEWCGROUP NEWUTS NEWIPC NEWUSER NEWPID NEWNET
_NEW_NAMESPACES = 0x80 | 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x70000000
# The low byte of clone's flags is the exit signal, which shares a bit with NEWTIME.
_NEW_BY_CLONE = _NEW_NAMESPACES & ~0xFF
_AF_ALG, _AF_VSOCK = 38, 40
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C

_REFUSED_EVERYWHERE = {
    "mount_setattr": 442,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "quotactl_fd": 443,
    "open_tree_attr": 467,
}
_MISSING_EVERYWHERE = {
    "clone3": 435,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
}
_REFUSED = {
    "x86_64": {
        "add_key": 248,
        "request_key": 249,
        "keyctl": 250,
        "mount": 165,
        "umount2": 166,
        "pivot_root": 155,
        "swapon": 167,
        "swapoff": 168,
        "reboot": 169,
        "setns": 308,
        "bpf": 321,
        "userfaultfd": 323,
        "perf_event_open": 298,
        "init_module": 175,
        "finit_module": 313,
        "delete_module": 176,
        "kexec_load": 246,
        "kexec_file_load": 320,
        "acct": 163,
        "quotactl": 179,
        "open_by_handle_at": 304,
        "iopl": 172,
        "ioperm": 173,
        "settimeofday": 164,
        "adjtimex": 159,
        "clock_settime": 227,
        "clock_adjtime": 305,
        "syslog": 103,
        "move_pages": 279,
        "migrate_pages": 256,
        "mbind": 237,
        "set_mempolicy": 238,
        "lookup_dcookie": 212,
        "vhangup": 153,
        "modify_ldt": 154,
    },
    "aarch64": {
        "add_key": 217,
        "request_key": 218,
        "keyctl": 219,
        "mount": 40,
        "umount2": 39,
        "pivot_root": 41,
        "swapon": 224,
        "swapoff": 225,
        "reboot": 142,
        "setns": 268,
        "bpf": 280,
        "userfaultfd": 282,
        "perf_event_open": 241,
        "init_module": 105,
        "finit_module": 273,
        "delete_module": 106,
        "kexec_load": 104,
        "kexec_file_load": 294,
        "acct": 89,
        "quotactl": 60,
        "open_by_handle_at": 265,
        "settimeofday": 170,
        "adjtimex": 171,
        "clock_settime": 112,
        "clock_adjtime": 266,
        "syslog": 116,
        "move_pages": 239,
        "migrate_pages": 238,
        "mbind": 235,
        "set_mempolicy": 237,
        "lookup_dcookie": 18,
        "vhangup": 58,
    },
}
_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CLONE = {"x86_64": 56, "aarch64": 220}
_UNSHARE = {"x86_64": 272, "aarch64": 97}
_SOCKET = {"x86_64": 41, "aarch64": 198}
_IOCTL = {"x86_64": 16, "aarch64": 29}
_X32_BIT = 0x40000000
_BUILDING = frozenset({"mount", "umount2", "pivot_root"})


def program(machine: str = "", *, building: bool = False) -> bytes:
    """Return the packed filter for a machine; this one's by default.

    Args:
        machine: As ``platform.machine()`` names it.
        building: For the first program of a fork server, which makes namespaces and mounts in
            them; it holds no capability outside of those.

    Raises:
        SandboxUnavailableError: There is no table for this processor.
    """
    machine = machine or platform.machine()
    if machine not in _REFUSED:
        raise SandboxUnavailableError(
            "sandbox.unavailable",
            f"there is no system call table for the processor {machine}",
            "use --sandbox container, or a host with x86_64 or aarch64",
        )
    return b"".join(
        struct.pack("=HBBI", *line) for line in _instructions(machine, building=building)
    )


def profile() -> str:
    """Return the same rules as the JSON profile that container engines read."""
    machine = "x86_64"  # names are the same everywhere; engines skip those a processor lacks
    refused = sorted({**_REFUSED_EVERYWHERE, **_REFUSED[machine]})
    rules: list[dict[str, object]] = [
        {"names": refused, "action": "SCMP_ACT_ERRNO", "errnoRet": errno.EPERM},
        {
            "names": sorted(_MISSING_EVERYWHERE),
            "action": "SCMP_ACT_ERRNO",
            "errnoRet": errno.ENOSYS,
        },
    ]
    for bit in (1 << number for number in range(32) if _NEW_NAMESPACES >> number & 1):
        names = ["unshare"] if bit == 0x80 else ["clone", "unshare"]
        rules.append(_ruled(names, 0, "SCMP_CMP_MASKED_EQ", bit, bit))
    rules += [_ruled(["socket"], 0, "SCMP_CMP_EQ", family) for family in (_AF_ALG, _AF_VSOCK)]
    rules += [_ruled(["ioctl"], 1, "SCMP_CMP_EQ", code) for code in (_TIOCSTI, _TIOCLINUX)]
    return json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules})


def _ruled(
    names: list[str], index: int, how: str, value: int, second: int = 0
) -> dict[str, object]:
    argument = {"index": index, "value": value, "valueTwo": second, "op": how}
    return {
        "names": names,
        "action": "SCMP_ACT_ERRNO",
        "errnoRet": errno.EPERM,
        "args": [argument],
    }


def _instructions(machine: str, *, building: bool = False) -> list[tuple[int, int, int, int]]:
    refuse = _ERRNO | errno.EPERM
    missing = _ERRNO | errno.ENOSYS
    lines = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, _ARCHITECTURE[machine]),
        (_RETURN, 0, 0, missing),
        (_LOAD, 0, 0, _NR),
    ]
    if machine == "x86_64":
        lines += [(_AT_LEAST, 0, 1, _X32_BIT), (_RETURN, 0, 0, missing)]
    for number in sorted(_MISSING_EVERYWHERE.values()):
        lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, missing)]
    refused = {**_REFUSED_EVERYWHERE, **_REFUSED[machine]}
    if building:
        refused = {name: number for name, number in refused.items() if name not in _BUILDING}
    for number in sorted(refused.values()):
        lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, refuse)]
    if not building:
        lines += _when(_CLONE[machine], [(_LOAD, 0, 0, _ARG0), *_bits(_NEW_BY_CLONE, refuse)])
        lines += _when(_UNSHARE[machine], [(_LOAD, 0, 0, _ARG0), *_bits(_NEW_NAMESPACES, refuse)])
    lines += _when(
        _SOCKET[machine],
        [(_LOAD, 0, 0, _ARG0), *_value(_AF_ALG, refuse), *_value(_AF_VSOCK, refuse)],
    )
    lines += _when(
        _IOCTL[machine],
        [(_LOAD, 0, 0, _ARG1), *_value(_TIOCSTI, refuse), *_value(_TIOCLINUX, refuse)],
    )
    return [*lines, (_RETURN, 0, 0, _ALLOW)]


def _bits(bits: int, verdict: int) -> list[tuple[int, int, int, int]]:
    return [(_ANY_BIT, 0, 1, bits), (_RETURN, 0, 0, verdict)]


def _value(value: int, verdict: int) -> list[tuple[int, int, int, int]]:
    return [(_EQUAL, 0, 1, value), (_RETURN, 0, 0, verdict)]


def _when(number: int, body: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """One call whose arguments decide; the rest of the program is not reached from inside it."""
    closed = [*body, (_RETURN, 0, 0, _ALLOW)]
    return [(_EQUAL, 0, len(closed), number), *closed]
