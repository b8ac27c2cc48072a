from __future__ import annotations

import json
import struct

import pytest

from qualityhub.engine.errors import SandboxUnavailableError
from qualityhub.engine.sandbox import seccomp

ALLOW, EPERM, ENOSYS = 0x7FFF0000, 0x00050001, 0x00050026
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def verdict(machine, number, *arguments, arch=None):
    """Run the packed program as the kernel would, on one system call."""
    call = struct.pack("=IIQ6Q", number, arch or ARCH[machine], 0, *(*arguments, *[0] * 6)[:6])
    lines = list(struct.iter_unpack("=HBBI", seccomp.program(machine)))
    place = accumulator = 0
    while True:
        code, yes, no, value = lines[place]
        place += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("=I", call, value)
        elif code == 0x06:
            return value
        else:
            test = {
                0x15: accumulator == value,
                0x35: accumulator >= value,
                0x45: accumulator & value,
            }
            place += yes if test[code] else no


@pytest.mark.parametrize(
    ("machine", "refused"),
    [
        (
            "x86_64",
            [250, 248, 249, 165, 166, 155, 308, 321, 323, 298, 428, 429, 430, 442, 304, 246],
        ),
        ("aarch64", [219, 217, 218, 40, 39, 41, 268, 280, 282, 241, 428, 429, 430, 442, 265, 104]),
    ],
)
def test_doors_into_the_kernel_are_refused(machine, refused):
    assert {number: verdict(machine, number) for number in refused} == dict.fromkeys(refused, EPERM)


@pytest.mark.parametrize(
    ("machine", "ordinary"),
    [("x86_64", [0, 1, 2, 9, 57, 59, 101, 231, 257, 318]), ("aarch64", [56, 63, 64, 93, 117, 222])],
)
def test_ordinary_calls_are_allowed(machine, ordinary):
    assert {verdict(machine, number) for number in ordinary} == {ALLOW}


@pytest.mark.parametrize(
    ("machine", "clone", "unshare"), [("x86_64", 56, 272), ("aarch64", 220, 97)]
)
def test_namespaces_are_refused_and_threads_are_not(machine, clone, unshare):
    for bit in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert verdict(machine, clone, bit | 17) == EPERM
        assert verdict(machine, unshare, bit) == EPERM
    assert verdict(machine, unshare, 0x80) == EPERM
    assert verdict(machine, clone, 0x3D0F00) == ALLOW
    assert verdict(machine, clone, 17) == ALLOW
    assert verdict(machine, unshare, 0x400) == ALLOW
    assert verdict(machine, 435) == ENOSYS
    assert verdict(machine, 425) == ENOSYS


@pytest.mark.parametrize(("machine", "call"), [("x86_64", 41), ("aarch64", 198)])
def test_socket_families_outside_network_namespaces_are_refused(machine, call):
    assert verdict(machine, call, 40, 1) == EPERM
    assert verdict(machine, call, 38, 5) == EPERM
    assert {verdict(machine, call, family, 1) for family in (1, 2, 10, 16)} == {ALLOW}


@pytest.mark.parametrize(("machine", "call"), [("x86_64", 16), ("aarch64", 29)])
def test_typing_into_a_terminal_is_refused(machine, call):
    assert verdict(machine, call, 0, 0x5412) == EPERM
    assert verdict(machine, call, 0, 0x5401) == ALLOW


def test_other_calling_conventions_are_refused():
    assert verdict("x86_64", 1, arch=0x40000003) == ENOSYS
    assert verdict("x86_64", 0x40000001) == ENOSYS
    assert verdict("aarch64", 1, arch=ARCH["x86_64"]) == ENOSYS


def test_an_unknown_processor_is_unavailable():
    with pytest.raises(SandboxUnavailableError, match="riscv64"):
        seccomp.program("riscv64")


def test_the_profile_of_engines_has_the_same_names():
    profile = json.loads(seccomp.profile())
    names = {name for rule in profile["syscalls"] for name in rule["names"]}
    assert {"keyctl", "mount", "bpf", "unshare", "clone", "clone3", "io_uring_setup"} <= names
    assert profile["defaultAction"] == "SCMP_ACT_ALLOW"
