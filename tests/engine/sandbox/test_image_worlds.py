"""Worlds of tasks whose image comes from an archive: no container engine answers here."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from qualityhub.engine.environments.model import Environment, Task
from qualityhub.engine.environments.reader import read_environment
from qualityhub.engine.errors import InvalidInputError, MachineryError, NotFoundError
from qualityhub.engine.sandbox import idmaps, reclaim, store
from qualityhub.engine.sandbox.fromlines import bare_base, base_images
from qualityhub.engine.sandbox.images import ImageFailed
from qualityhub.engine.sandbox.images.importing import import_archive
from qualityhub.engine.sandbox.images.inside import ImageUser, user_of
from qualityhub.engine.sandbox.images.names import (
    forget_name,
    named_images,
    normal_name,
    remember_name,
)
from qualityhub.engine.sandbox.port import Limits
from qualityhub.engine.trials import image_worlds
from qualityhub.engine.trials.drivers import plan_trials
from qualityhub.engine.trials.model import Ask
from qualityhub.engine.trials.runner import TrialRunner, run_trials, world_digests
from qualityhub.engine.trials.store import NullStore
from qualityhub.engine.trials.worlds import (
    locate_world,
    prepare_world,
    world_command,
    world_to_json,
)

from .image_archives import OTHER, Image, file, folder, oci, saved, tar, tar_of
from .small_root import small_root

owners = pytest.mark.skipif(
    not idmaps.current().keeps_owners, reason="owners of images are kept by root only"
)


@pytest.fixture(autouse=True)
def no_engine(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")


@pytest.fixture
def data(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def package(tmp_path):
    return tmp_path / "package"


@pytest.fixture
def task_of(package):
    """An environment of one task that starts from the image named, beside what it may bring."""

    def make(image="", dockerfile="", **files):
        (package / "environment").mkdir(parents=True)
        for name, content in files.items():
            (package / name.replace("_tar", ".tar")).write_bytes(content)
        if dockerfile:
            (package / "environment/Dockerfile").write_text(dockerfile)
        data = {
            "path": ".",
            "context": "environment",
            "dockerfile": "environment/Dockerfile" if dockerfile else "",
            "docker_image": image,
            "compose": False,
        }
        task = Task("t", {}, "d", data)
        fields = {"name": "x", "adapter": "test", "family": "task", "digest": "d"}
        return Environment(**fields, tasks=(task,), root=package)

    return make


def archive(*extra, layout=oci, **config):
    return tar_of(layout(Image([tar(*small_root()), tar(*extra)], config)))


@pytest.fixture
def world_of(bwrap, data, task_of):
    def make(*extra, **config):
        return prepare_world(task_of("image.tar", image_tar=archive(*extra, **config)), bwrap, data)

    return make


def run(bwrap, world, script, **options):
    seen = bwrap.run(world_command(world, ("sh", "-c", script), **options))
    assert seen.exit_code == 0, seen
    return seen.stdout.decode()


@pytest.mark.parametrize("layout", [oci, saved])
def test_a_task_starts_from_an_archive_in_its_package(bwrap, data, task_of, layout):
    made = archive(file("srv/word", "hello"), layout=layout, Env=["A=one two"], WorkingDir="/srv")
    world = prepare_world(task_of("image.tar", image_tar=made), bwrap, data)
    assert world.status == "ready", world
    assert world.provisional is not idmaps.current().keeps_owners
    assert (
        run(bwrap, world, "cat word; echo; echo $A; id -u; echo x >word") == "hello\none two\n0\n"
    )
    assert run(bwrap, world, "cat word") == "hello"


def test_an_archive_beside_the_dockerfile_is_found_first(bwrap, data, task_of, package):
    environment = task_of("image.tar", image_tar=archive(file("which", "outer")))
    inner = archive(file("which", "inner"))
    (package / "environment/image.tar").write_bytes(inner)
    assert run(bwrap, prepare_world(environment, bwrap, data), "cat /which") == "inner"


def test_the_same_image_has_the_same_world_however_it_came(bwrap, data, task_of, tmp_path):
    path = tmp_path / "outside.tar"
    path.write_bytes(archive(layout=saved))
    known = import_archive(path, tmp_path / "other home")
    environment = task_of("lab/base:1", image_tar=archive())
    remember_name(tmp_path / "other home", "lab/base:1", known.tree.digest, "")
    named = prepare_world(environment, bwrap, tmp_path / "other home")
    environment.tasks[0].data["docker_image"] = "image.tar"
    assert prepare_world(environment, bwrap, data).digest == named.digest


@owners
def test_commands_run_as_the_images_user_with_its_groups_and_home(bwrap, world_of):
    world = world_of(
        folder("home/agent", uid=1500, gid=1500),
        folder("home/root-only"),
        User="agent",
        WorkingDir="/home/agent",
    )
    assert run(bwrap, world, "id -u; id -g; id -G; echo $HOME").split() == [
        *("1500", "1500", "1500", "1600", "/home/agent")
    ]
    assert run(bwrap, world, "echo x >mine && echo yes") == "yes\n"
    denied = run(bwrap, world, "(echo x >/home/root-only/f) 2>/dev/null || echo no")
    assert denied == "no\n"


def test_a_user_that_the_image_does_not_know_is_its_own_fault(world_of):
    world = world_of(User="nobody-here")
    assert world.status == "failed"
    assert "nobody-here" in world.reason


def test_an_image_that_cannot_become_its_user_says_what_it_lacks(bwrap, data, task_of):
    programs = ("sh", "cat")
    made = tar_of(oci(Image([tar(*small_root(*programs))], {"User": "agent"})))
    world = prepare_world(task_of("image.tar", image_tar=made), bwrap, data)
    assert world.status == "unavailable"
    assert "setpriv" in world.would_need


# Entry points ---------------------------------------------------------------------------------

PREPARES = """#!/bin/sh
sleep 0.4
mkdir -p /run/made
echo "$PWD $A $(id -u)" >/run/made/word
export LEAKED=yes
exec "$@"
"""


def test_an_entry_point_prepares_the_world_before_any_command(bwrap, world_of):
    world = world_of(
        file("start", PREPARES, 0o755), Entrypoint=["/start"], Env=["A=a b"], WorkingDir="/srv"
    )
    assert (world.status, world.entrypoint, world.entry_waits) == ("ready", ("/start",), True)
    # Others are run beside it: what it exports is its own.
    seen = run(bwrap, world, "cat /run/made/word; echo ${LEAKED:-none} ${QH_ENTRY:-none}")
    assert seen == "/srv a b 0\nnone none\n"
    assert run(bwrap, world, "test -e /run/made || echo none", entry=False) == "none\n"
    seen = bwrap.run(world_command(world, ("cat",), stdin=b"input"))
    assert seen.stdout == b"input"
    seen = bwrap.run(world_command(world, ("sh", "-c", "exit 7")))
    assert seen.exit_code == 7


def test_an_entry_point_that_stays_in_the_foreground_runs_beside_commands(
    bwrap, world_of, monkeypatch
):
    monkeypatch.setattr(image_worlds, "_ENTRY_LIMITS", Limits(wall_s=2.0))
    program = "#!/bin/sh\necho up >/run/service\nexec sleep 100\n"
    world = world_of(folder("run"), file("serve", program, 0o755), Entrypoint=["/serve"])
    assert (world.status, world.entry_waits) == ("ready", False)
    assert run(bwrap, world, "cat /run/service") == "up\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [(["/bin/sh", "-c", "echo no database >&2; exit 3"], "status 3"), (["/missing"], "status 127")],
)
def test_an_entry_point_that_ends_at_once_is_the_images_fault(world_of, words, said):
    world = world_of(Entrypoint=words)
    assert world.status == "failed"
    assert "ENTRYPOINT" in world.reason
    assert said in world.reason


def test_an_entry_point_that_lacks_a_network_is_not_the_images_fault(world_of):
    script = "echo 'curl: (6) Could not resolve host: db.example' >&2; exit 6"
    world = world_of(Entrypoint=["/bin/sh", "-c", script])
    assert world.status == "unavailable"
    assert "needs a network" in world.reason


@owners
def test_an_entry_point_runs_as_the_images_user(bwrap, world_of):
    world = world_of(
        file("start", '#!/bin/sh\nid -u >/tmp/who\nexec "$@"\n', 0o755),
        Entrypoint=["/start"],
        User="1500",
    )
    assert run(bwrap, world, "cat /tmp/who") == "1500\n"


def test_two_entry_points_are_two_worlds(bwrap, data, task_of):
    start = file("start", '#!/bin/sh\nexec "$@"\n', 0o755)
    environment = task_of("image.tar", image_tar=archive(start, Entrypoint=["/start"]))
    first = prepare_world(environment, bwrap, data)
    (environment.root / "image.tar").write_bytes(archive(start, Entrypoint=["/start", "-x"]))
    # Its first argument becomes the program.
    second = prepare_world(environment, bwrap, data)
    assert second.status == "failed"
    (environment.root / "image.tar").write_bytes(archive(start))
    assert prepare_world(environment, bwrap, data).digest != first.digest


# Names ----------------------------------------------------------------------------------------


@pytest.fixture
def prepared(bwrap, data, task_of):
    """The world of a task with an image or a Dockerfile."""
    return lambda image, dockerfile="": prepare_world(task_of(image, dockerfile), bwrap, data)


@pytest.fixture
def imported(data, tmp_path):
    path = tmp_path / "named.tar"
    path.write_bytes(archive(file("which", "imported")))
    tree = import_archive(path, data).tree
    remember_name(data, "docker.io/library/debian:12", tree.digest, "sha256:1")
    return tree


@pytest.fixture(params=["engine", "no engine"])
def engine(request, monkeypatch):
    monkeypatch.setattr(image_worlds, "engine_available", lambda: request.param == "engine")


@pytest.mark.parametrize(
    "asked",
    [
        ("debian:12", ""),
        ("", "FROM debian:12\n"),
        ("", "# as is\nARG BASE=debian\nFROM --platform=linux/amd64 ${BASE}:12\nLABEL a=b\n"),
        ("docker.io/debian:12", "FROM other\nRUN make\n"),
    ],
)
def test_an_imported_name_wins_whether_or_not_an_engine_answers(
    prepared, bwrap, imported, engine, asked
):
    world = prepared(*asked)
    assert world.base == imported.digest
    assert run(bwrap, world, "cat /which") == "imported"


def test_a_dockerfile_that_adds_something_is_not_its_base(prepared, imported):
    world = prepared("", "FROM debian:12\nRUN make\n")
    assert world.status == "unavailable"
    assert "RUN make" in world.reason


def test_where_an_image_cannot_be_fetched_its_dockerfile_is_built(
    bwrap, data, task_of, imported, monkeypatch
):
    missing = ImageFailed("the registry is down", host_fault=True, would_need="a registry")
    monkeypatch.setattr(image_worlds, "engine_available", lambda: True)
    monkeypatch.setattr(image_worlds, "fetch_image", lambda *_, **__: missing)
    monkeypatch.setattr(image_worlds, "build_image", lambda *_, **__: imported)
    told = []
    made = task_of("registry.example/x:1", "FROM debian\nRUN make\n")
    world = prepare_world(made, bwrap, data, progress=told.append)
    assert world.base == imported.digest
    assert any("registry is down" in line for line in told)


@pytest.mark.parametrize(
    ("name", "normal"),
    [
        ("debian", "debian:latest"),
        ("docker.io/library/debian:12", "debian:12"),
        ("localhost/mine", "mine:latest"),
        ("host:5000/lab/base", "host:5000/lab/base:latest"),
        ("lab/base@sha256:ab", "lab/base@sha256:ab"),
    ],
)
def test_one_image_has_one_name(name, normal):
    assert normal_name(name) == normal


@pytest.mark.parametrize("name", ["", "  ", "a b", "/etc/passwd", "../x", "-x", "é", "x" * 400])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(InvalidInputError):
        normal_name(name)


def test_names_are_listed_moved_and_forgotten(data, imported):
    remember_name(data, "lab/base", imported.digest, "sha256:1")
    assert [item.name for item in named_images(data)] == ["debian:12", "lab/base:latest"]
    assert named_images(data)[0].bytes > 100_000
    assert forget_name(data, "debian:12") == "debian:12"
    with pytest.raises(NotFoundError):
        forget_name(data, "debian:12")
    assert len(reclaim.prune(data, max_bytes=0).removed) == 0
    forget_name(data, "lab/base")
    assert len(reclaim.prune(data, max_bytes=0).removed) == 1


def test_images_that_a_dockerfile_takes_from_outside():
    text = (
        "ARG V=3.12\nFROM python:${V} AS build\nFROM build AS again\nFROM scratch\n"
        "COPY --from=build /a /a\nCOPY --from=busybox:1 /b /b\nCOPY --from=0 /c /c\n"
    )
    assert base_images(text) == ("python:3.12", "busybox:1")
    assert bare_base(text) == ""
    assert bare_base("FROM x\nENV A=b\n") == ""
    assert bare_base('FROM x\nENTRYPOINT ["y"]\n') == ""
    assert bare_base("FROM x AS y\nCMD z\n") == "x"


# Faults and use -------------------------------------------------------------------------------


def test_an_archive_for_another_platform_needs_another_host(bwrap, data, task_of):
    made = tar_of(oci(Image([tar(file("x"))], architecture=OTHER)))
    world = prepare_world(task_of("image.tar", image_tar=made), bwrap, data)
    assert world.status == "unavailable"
    assert OTHER in world.reason


@pytest.mark.parametrize(
    "content", [b"junk" * 500, tar_of(oci(Image([tar(file("../../out"))])))], ids=["junk", "escape"]
)
def test_an_archive_that_cannot_be_used_is_the_environments_fault(bwrap, data, task_of, content):
    world = prepare_world(task_of("image.tar", image_tar=content), bwrap, data)
    assert world.status == "failed"
    assert "image.tar" in world.reason


@pytest.mark.parametrize("image", ["../outside.tar", "/etc/hostname", "way/outside.tar"])
def test_an_archive_outside_the_package_is_not_read(bwrap, data, task_of, tmp_path, image):
    (tmp_path / "outside.tar").write_bytes(archive())
    environment = task_of(image)
    (environment.root / "way").symlink_to(tmp_path)
    world = prepare_world(environment, bwrap, data)
    assert world.status == "unavailable"
    assert not (data / "images").exists()


def test_a_world_keeps_its_image_while_it_is_used(bwrap, data, world_of):
    world = world_of(file("which", "mine"))
    found = locate_world(world_to_json(world), data)
    del world
    gc.collect()
    assert reclaim.prune(data, max_bytes=0).removed == ()
    assert run(bwrap, found, "cat /which") == "mine"
    del found
    gc.collect()
    assert len(reclaim.prune(data, max_bytes=0).removed) == 1


def test_what_is_removed_while_a_world_is_made_is_made_again(world_of, data, monkeypatch):
    pin, calls = store.pin, []

    def gone_once(path):
        if path.parent == data / "images" and path.name[0] != "." and not calls:
            calls.append(path)
            reclaim.prune(data, max_bytes=0)
        return pin(path)

    monkeypatch.setattr(store, "pin", gone_once)
    assert world_of().status == "ready"
    assert calls


def test_a_store_that_keeps_losing_what_was_made_is_our_error(world_of, data, monkeypatch):
    pin = store.pin
    monkeypatch.setattr(
        store, "pin", lambda path: None if path.parent == data / "images" else pin(path)
    )
    with pytest.raises(MachineryError, match="again and again"):
        world_of()


def test_users_are_looked_up_in_the_images_own_tables(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text(
        "broken\nroot:x:0:0::/root:/bin/sh\nagent:x:7:8::/home/agent:/bin/sh\nbad:x:y:8::/:\n"
    )
    (tmp_path / "etc/group").write_text("staff:x:50:agent,other\nwheel:x:10:\n")
    assert user_of(tmp_path, "") == ImageUser()
    assert user_of(tmp_path, "agent") == ImageUser(7, 8, (50,), "/home/agent", "agent")
    assert user_of(tmp_path, "7") == user_of(tmp_path, "agent")
    assert user_of(tmp_path, "agent:wheel") == ImageUser(7, 10, (), "/home/agent", "agent")
    assert user_of(tmp_path, "1234:99") == ImageUser(1234, 99, (), "/", "")
    assert user_of(tmp_path, "agent:none") is user_of(tmp_path, "bad") is None


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../../../../etc/passwd"])
def test_tables_that_are_links_to_the_host_are_not_followed(tmp_path, target):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").symlink_to(target)
    assert user_of(tmp_path, "daemon") is None


def test_a_harbor_task_earns_its_reward_in_an_imported_image(bwrap, data, package):
    start = '#!/bin/sh\nmkdir -p /run/shed\necho 3 >/run/shed/count\nexec "$@"\n'
    files = {
        "task.toml": '[environment]\ndocker_image = "image.tar"\n',
        "instruction.md": "Write what the shed counts to /srv/answer.\n",
        "solution/solve.sh": "cat /run/shed/count >/srv/answer\n",
        "tests/test.sh": (
            "mkdir -p /logs/verifier\nread answer </srv/answer\n"
            '[ "$answer" = 3 ] && echo 1 >/logs/verifier/reward.txt '
            "|| echo 0 >/logs/verifier/reward.txt\n"
        ),
    }
    for name, text in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    image = archive(folder("srv"), file("start", start, 0o755), Entrypoint=["/start"])
    (package / "image.tar").write_bytes(image)
    environment = read_environment(str(package))
    task = environment.tasks[0].id
    worlds = {task: prepare_world(environment, bwrap, data)}
    runner = TrialRunner(environment, worlds, bwrap, NullStore(), data)
    seen = {}
    try:
        asks = [Ask(task, "oracle"), Ask(task, "nop")]
        trials = plan_trials(environment, world_digests(worlds), asks)
        run_trials(runner, trials, 1, lambda trial, result: seen.update({trial.asks[0]: result}))
    finally:
        runner.close()
    rewards = [seen[ask].observations[0].reward for ask in asks]
    assert rewards == [1.0, 0.0], seen
    assert list((data / "staging").iterdir()) == []
    assert isinstance(runner._stage, Path)
