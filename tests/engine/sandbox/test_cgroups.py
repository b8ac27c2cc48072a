from __future__ import annotations

from qualityhub.engine.sandbox.launcher.cgroups import detect, remove, sweep


def line(root, point, kind, options="rw"):
    return f"30 20 0:25 {root} {point} rw - {kind} {kind} {options}\n"


def test_version_one_is_found_below_our_own_group(tmp_path):
    for name in ("memory/jobs/mine", "pids", "cpuacct"):
        (tmp_path / name).mkdir(parents=True)
    mounts = "".join(
        line("/", tmp_path / name, "cgroup", f"rw,{name}") for name in ("memory", "pids")
    )
    seen = detect("4:memory:/jobs/mine\n8:pids:/\n2:cpuacct:/\n0::/\n", mounts)
    assert [(item.version, item.folder, item.controllers) for item in seen] == [
        (1, f"{tmp_path}/memory/jobs/mine", ("memory",)),
        (1, f"{tmp_path}/pids", ("pids",)),
    ]


def test_a_group_outside_what_is_mounted_is_not_ours(tmp_path):
    mounts = line("/other", tmp_path, "cgroup", "rw,memory")
    assert detect("4:memory:/jobs\n", mounts) == []


def test_controllers_mounted_together_stay_together(tmp_path):
    mounts = line("/", tmp_path, "cgroup", "rw,cpu,cpuacct")
    (seen,) = detect("3:cpu,cpuacct:/\n", mounts)
    assert seen.controllers == ("cpu", "cpuacct")


def test_version_two_needs_its_controllers_enabled(tmp_path):
    group = tmp_path / "mine"
    group.mkdir()
    (group / "cgroup.controllers").write_text("cpu memory pids\n")
    (group / "cgroup.subtree_control").write_text("memory pids\n")
    (seen,) = detect("0::/mine\n", line("/", tmp_path, "cgroup2"))
    assert (seen.version, seen.folder) == (2, str(group))
    assert set(seen.controllers) >= {"memory", "pids"}


def test_version_two_without_controllers_is_no_use(tmp_path):
    (tmp_path / "cgroup.controllers").write_text("\n")
    (tmp_path / "cgroup.subtree_control").write_text("\n")
    assert detect("0::/\n", line("/", tmp_path, "cgroup2")) == []


def test_broken_tables_are_no_crash(tmp_path):
    assert detect("", "") == []
    assert detect("nonsense\n:::\n", "a b\n - \n") == []


def test_groups_of_dead_launchers_are_swept(tmp_path):
    for name in ("qh-999999999-4", "qh-1-2", "other"):
        (tmp_path / name).mkdir()
    (hierarchy,) = detect("4:memory:/\n", line("/", tmp_path, "cgroup", "rw,memory"))
    sweep([hierarchy])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "qh-1-2"]


def test_a_busy_group_is_said_to_stay(tmp_path):
    (tmp_path / "busy").mkdir()
    (tmp_path / "busy" / "file").write_text("")
    assert remove(str(tmp_path / "busy")) is False
    assert remove(str(tmp_path / "gone")) is True
