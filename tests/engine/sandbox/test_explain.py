from __future__ import annotations

import pytest

from qualityhub.engine.sandbox.explain import explained, limits_in_words
from qualityhub.engine.sandbox.hostfacts import HostFacts, look_at_host
from qualityhub.engine.sandbox.port import Capability

BROKEN = Capability("bwrap", usable=False, reason="unshare: Operation not permitted")
ROOT_MOUNT = "21 1 254:0 / / rw,relatime - {kind} /dev/root rw\n"
CGROUP_MOUNT = "30 21 0:26 / /sys/fs/cgroup {how},nosuid - cgroup2 cgroup2 rw\n"


@pytest.fixture
def host(tmp_path):
    """A host of which only what a test writes is there."""

    def make(uid=1000, root="ext4", cgroup="rw", **files):
        texts = {
            "proc/sys/user/max_user_namespaces": "63000",
            "proc/self/mountinfo": ROOT_MOUNT.format(kind=root) + CGROUP_MOUNT.format(how=cgroup),
            "proc/1/cgroup": "0::/init.scope",
            **files,
        }
        for name, text in texts.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return look_at_host(tmp_path, uid)

    return make


def soft(**changes):
    limits = {"memory_bytes": "soft", "pids": "soft", "disk_bytes": "hard"}
    return Capability("bwrap", usable=True, limits=limits, ownership=True, **changes)


@pytest.mark.parametrize(
    ("uid", "files", "reason", "remedy"),
    [
        (
            0,
            {"proc/sys/user/max_user_namespaces": "0"},
            "forbids user namespaces (user.max_user_namespaces is 0)",
            "sysctl -w user.max_user_namespaces=15000",
        ),
        (
            1000,
            {"proc/sys/kernel/unprivileged_userns_clone": "0"},
            "to ordinary users (kernel.unprivileged_userns_clone is 0)",
            "sysctl -w kernel.unprivileged_userns_clone=1",
        ),
        (
            1000,
            {"proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1"},
            "AppArmor takes the rights",
            "AppArmor profile that allows userns",
        ),
    ],
)
def test_a_switch_of_the_kernel_is_named_with_the_command_that_turns_it(
    host, uid, files, reason, remedy
):
    seen = explained(BROKEN, host(uid, **files))
    assert not seen.usable
    assert reason in seen.reason
    assert "Operation not permitted" in seen.reason
    assert remedy in seen.remedy
    assert "--sandbox container" in seen.remedy


def test_switches_for_ordinary_users_are_no_reason_for_root(host):
    facts = host(
        0,
        **{
            "proc/sys/kernel/unprivileged_userns_clone": "0",
            "proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1",
        },
    )
    assert explained(BROKEN, facts).reason == BROKEN.reason


@pytest.mark.parametrize(
    ("uid", "files", "name", "remedy"),
    [
        (0, {"run/.containerenv": ""}, "Podman", "--cap-add SYS_ADMIN --security-opt unmask=ALL"),
        (
            0,
            {".dockerenv": ""},
            "Docker",
            "--cap-add SYS_ADMIN --security-opt systempaths=unconfined",
        ),
        (
            1000,
            {".dockerenv": ""},
            "Docker",
            "--security-opt seccomp=unconfined --security-opt systempaths=unconfined",
        ),
        (
            0,
            {"proc/1/cgroup": "0::/kubepods.slice/pod1"},
            "Kubernetes",
            "procMount: Unmasked, seccompProfile.type: Unconfined, capabilities.add: [SYS_ADMIN]",
        ),
    ],
)
def test_inside_a_container_the_way_out_is_how_it_is_started(host, uid, files, name, remedy):
    seen = explained(BROKEN, host(uid, root="overlay", **files))
    assert f"inside a container of {name}" in seen.reason
    assert remedy in seen.remedy
    assert "mount the engine's socket" in seen.remedy


def test_a_host_made_from_an_image_is_no_container(host):
    facts = host(0, root="ext4", **{".dockerenv": "", "run/.containerenv": ""})
    assert facts.container == ""


def test_a_missing_program_is_told_as_it_is(host):
    absent = Capability(
        "bwrap", usable=False, reason="bubblewrap is not installed", remedy="get it"
    )
    facts = host(0, root="overlay", **{".dockerenv": "", "proc/sys/user/max_user_namespaces": "0"})
    assert explained(absent, facts) == absent


def test_another_provider_speaks_for_itself(host):
    other = Capability("container", usable=False, reason="nobody answers", remedy="start one")
    assert explained(other, host(**{"proc/sys/user/max_user_namespaces": "0"})) == other


@pytest.mark.parametrize(
    ("changes", "why", "remedy"),
    [
        ({}, "none was delegated to this user", "Delegate=yes"),
        ({"cgroup": "ro"}, "/sys/fs/cgroup is mounted read-only", "mount /sys/fs/cgroup writable"),
        (
            {"cgroup": "ro", "root": "overlay", "run/.containerenv": ""},
            "in this container of Podman",
            "start the container with a writable /sys/fs/cgroup",
        ),
    ],
)
def test_soft_limits_say_which_and_why(host, changes, why, remedy):
    seen = explained(soft(), host(**changes))
    assert seen.usable
    assert why in seen.reason
    assert "memory and processes" in seen.reason
    assert remedy in seen.remedy


@pytest.mark.parametrize(
    ("tools", "subordinate", "reason", "remedy"),
    [
        (False, True, "newuidmap is not installed", "install uidmap"),
        (True, False, "ann has no range in /etc/subuid", "usermod --add-subuids"),
        (False, False, "newuidmap is not installed and ann has no range", "then usermod"),
    ],
)
def test_owners_that_are_not_real_say_what_is_missing(tools, subordinate, reason, remedy):
    facts = HostFacts(1000, "ann", map_tools=tools, subordinate=subordinate)
    seen = explained(Capability("bwrap", usable=True), facts)
    assert reason in seen.reason
    assert "file ownership inside is not real" in seen.reason
    assert remedy in seen.remedy


def test_a_host_that_can_do_it_all_needs_nothing(host):
    seen = explained(
        Capability("bwrap", usable=True, limits={"memory_bytes": "hard"}, ownership=True), host(0)
    )
    assert (seen.reason, seen.remedy) == ("", "")


def test_ranges_of_ids_are_looked_up_by_name_and_number(host):
    assert not host(4242).subordinate
    rows = {"etc/subuid": "4242:200000:65536\n", "etc/subgid": "4242:200000:65536\n"}
    assert host(4242, **rows).subordinate


def test_limits_are_told_in_words():
    limits = {"memory_bytes": "hard", "disk_bytes": "soft", "files": "none", "wall_s": "hard"}
    assert limits_in_words(Capability("x", usable=True, limits=limits)) == (
        "hard: memory, wall clock; soft (sampled): disk; not limited: number of files"
    )
