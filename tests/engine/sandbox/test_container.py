from __future__ import annotations

import contextlib
import gc
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import docker
import pytest

from qualityhub.engine.errors import MachineryError, SandboxUnavailableError
from qualityhub.engine.sandbox import container as provider
from qualityhub.engine.sandbox import container_images, container_shim, container_traits, store
from qualityhub.engine.sandbox.container import ContainerSandbox
from qualityhub.engine.sandbox.container_files import measure
from qualityhub.engine.sandbox.container_images import write_tree
from qualityhub.engine.sandbox.container_life import LABEL, owner, remove, sweep
from qualityhub.engine.sandbox.container_traits import Traits, find_traits
from qualityhub.engine.sandbox.engine import engine_address
from qualityhub.engine.sandbox.idmaps import IdMaps
from qualityhub.engine.sandbox.port import Command, Mount

from .engine_proxy import EngineProxy

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
ROW = ((0, 0, 1),)


def sh(text, **changes):
    return Command(argv=("sh", "-c", text), env=ENV, **changes)


@contextlib.contextmanager
def connected():
    client = docker.DockerClient(base_url=engine_address(), version="auto")
    yield client
    client.close()


@pytest.fixture
def client(container):
    with connected() as client:
        yield client


@pytest.fixture
def proxied(container, client, tmp_path, monkeypatch):
    """A sandbox behind an engine that can fail; what it found out is known already."""
    proxy = EngineProxy(tmp_path / "engine.sock", engine_address())
    monkeypatch.setenv("DOCKER_HOST", proxy.address)
    sandbox = ContainerSandbox(tmp_path / "home")
    sandbox._traits = container._traits
    yield sandbox, proxy
    sandbox.close()
    proxy.cut()
    gc.collect()
    for one in client.api.containers(all=True, filters={"label": f"{LABEL}={owner()}"}):
        assert remove(client, one["Id"])


# The client library leaves a socket that could not connect to the garbage collector.
lost = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def wait_for(condition, seconds=20):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.05)


@lost
@pytest.mark.container
def test_an_engine_that_is_lost_under_way_is_our_error(proxied):
    sandbox, proxy = proxied
    problems = []

    def run():
        try:
            sandbox.run(sh("sleep 60"))
        except Exception as error:  # noqa: BLE001 - which one it is, is the question
            problems.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_for(lambda: any("/start" in line for line in proxy.seen))
    time.sleep(0.5)
    proxy.cut()
    thread.join(30)
    assert not thread.is_alive()
    (error,) = problems
    assert isinstance(error, MachineryError)
    assert error.code == "sandbox.engine"


@lost
@pytest.mark.container
@pytest.mark.parametrize(
    "step",
    ["POST .*/containers/create", "PUT .*/archive", "/attach", "/start", "GET .*/json", "/wait"],
)
def test_an_engine_that_answers_with_an_error_is_our_error_and_leaves_nothing(
    proxied, client, step
):
    sandbox, proxy = proxied
    sandbox._client()
    proxy.refuse = step
    with pytest.raises(MachineryError, match="the container engine failed"):
        sandbox.run(sh("true"))
    proxy.refuse = ""
    assert client.api.containers(all=True, filters={"label": f"{LABEL}={owner()}"}) == []


@lost
@pytest.mark.container
def test_an_engine_that_falls_silent_is_our_error(proxied, monkeypatch):
    sandbox, proxy = proxied
    monkeypatch.setattr(provider, "_ANSWER_S", 1)
    sandbox._client()
    proxy.hang = "/start"
    with pytest.raises(MachineryError):
        sandbox.run(sh("true"))


@pytest.mark.container
def test_what_an_engine_did_not_remove_is_removed_when_it_answers_again(proxied, client):
    sandbox, proxy = proxied
    sandbox._client()
    proxy.hang = "DELETE"
    sandbox._connected.api.timeout = 2
    assert sandbox.run(sh("true")).exit_code == 0
    mine = {"label": f"{LABEL}={owner()}"}
    assert len(client.api.containers(all=True, filters=mine)) == 1
    proxy.hang = ""
    assert sandbox.run(sh("exit 4")).exit_code == 4
    assert client.api.containers(all=True, filters=mine) == []


def test_no_engine_is_no_provider(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    sandbox = ContainerSandbox(tmp_path / "home")
    seen = sandbox.capability()
    assert (seen.usable, seen.reason) == (False, "no container engine answers")
    assert "DOCKER_HOST" in seen.remedy
    with pytest.raises(SandboxUnavailableError):
        sandbox.run(sh("true"))


@pytest.mark.container
def test_closing_ends_running_commands(tmp_path, container, client):
    sandbox = ContainerSandbox(tmp_path)
    sandbox._traits = container._traits
    problems = []

    def run():
        try:
            sandbox.run(sh("sleep 60"))
        except MachineryError as error:
            problems.append(error.code)

    thread = threading.Thread(target=run)
    thread.start()
    wait_for(lambda: any(one.container for one in sandbox._runs.values()))
    time.sleep(0.7)
    began = time.monotonic()
    sandbox.close()
    thread.join(30)
    assert time.monotonic() - began < 15
    assert problems == ["sandbox.lost"]


def is_last(client, filters):
    """Whether the command itself runs, and not a container that asks what the engine can do."""
    running = client.api.containers(filters=filters)
    return any(
        "/.qh/start" in client.api.inspect_container(one["Id"])["Config"]["Cmd"] for one in running
    )


_KILLED = """
import sys
sys.path[:] = {path!r}
from pathlib import Path
from qualityhub.engine.sandbox.container import ContainerSandbox
from qualityhub.engine.sandbox.port import Command
from qualityhub.engine.sandbox.container_life import owner
sandbox = ContainerSandbox(Path({home!r}))
print(owner(), flush=True)
sandbox.run(Command(argv=("sleep", "600"), env={{"PATH": "/usr/bin:/bin"}}))
"""


@pytest.mark.container
def test_containers_of_a_killed_process_are_swept(tmp_path, container, client):
    text = _KILLED.format(path=sys.path, home=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True) as child:
        dead = child.stdout.readline().strip()
        theirs = {"label": f"{LABEL}={dead}"}
        wait_for(lambda: is_last(client, theirs), 60)
        sweep(client)
        assert client.api.containers(filters=theirs), "a living process kept its container"
        os.kill(child.pid, signal.SIGKILL)
    sweep(client)
    assert client.api.containers(all=True, filters=theirs) == []


@pytest.mark.container
def test_a_forked_process_gets_a_connection_of_its_own(container):
    assert container.run(sh("exit 3")).exit_code == 3
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = container.run(sh("exit 5")).exit_code
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 5
    assert container.run(sh("exit 4")).exit_code == 4


@pytest.mark.container
def test_standard_input_lies_nowhere_once_it_is_read(container):
    seen = container.run(
        sh(
            "cat >/dev/null; for f in /.qh/* /proc/[0-9]*/fd/* /proc/1/environ; do "
            "timeout 1 cat $f 2>/dev/null </dev/null; done | grep -c 'secret[-]word'; true",
            stdin=b"the secret-word\n" * 10,
        )
    )
    assert seen.stdout == b"0\n", seen


@pytest.mark.container
def test_it_may_use_as_many_cpus_as_asked(container):
    program = "import os; print(len(os.sched_getaffinity(0)))"
    seen = container.run(Command(argv=("python3", "-c", program), env=ENV, cpus=1))
    assert seen.stdout == b"1\n"


@pytest.mark.container
def test_a_source_that_is_not_there_is_our_error(container, tmp_path):
    with pytest.raises(MachineryError, match="none"):
        container.run(sh("true", mounts=(Mount("/given", tmp_path / "none"),)))


@pytest.mark.container
def test_files_are_copied_where_the_engine_does_not_see_them(container, tmp_path):
    far = ContainerSandbox(tmp_path / "home")
    far._traits = Traits(remapped=container._traits.remapped, userns=container._traits.userns)
    (tmp_path / "given").mkdir()
    (tmp_path / "given/file").write_text("here\n")
    seen = far.run(sh("cat /given/file", mounts=(Mount("/given", tmp_path / "given"),)))
    assert seen.stdout == b"here\n", seen
    far.close()


@pytest.mark.container
def test_without_ids_of_its_own_a_command_runs_as_nobody(container, tmp_path):
    plain = ContainerSandbox(tmp_path)
    plain._traits = Traits(shared=True)
    seen = plain.run(
        sh("id -u; cat; grep CapEff /proc/self/status; touch /etc/x", stdin=b"given\n")
    )
    words = seen.stdout.decode().split()
    assert words == ["65532", "given", "CapEff:", "0000000000000000"]
    assert seen.exit_code == 1
    capability = provider._able("container", plain._traits)
    assert not capability.ownership
    assert "the engine's root is the host's" in capability.reason
    assert "/etc/subuid" in capability.remedy
    plain.close()


# Images of tasks.


PROGRAMS = ("sh", "env", "stat", "mkdir", "rm", "mv", "ls", "id", "test")


def copy_programs(place):
    """Put a few programs of the host and their libraries into an empty tree."""
    wanted = set()
    for name in PROGRAMS:
        path = shutil.which(name)
        shutil.copy(path, place / "usr/bin" / name)
        said = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        wanted |= {word for word in said.split() if word.startswith("/")}
    for library in wanted:
        target = place / library.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)


@pytest.fixture(scope="module")
def owned(tmp_path_factory):
    """The files of a small image as root's store would hold them: owners moved up by a number."""
    if not engine_address():
        pytest.skip("no container engine answers")
    if os.geteuid() != 0:
        pytest.skip("only root can give files to others")
    home = tmp_path_factory.mktemp("tree")
    place = home / "images" / secrets.token_hex(20)
    for folder in ("usr/bin", "srv", "work", "tmp", "etc"):
        (place / folder).mkdir(parents=True)
    (place / "bin").symlink_to("usr/bin")
    copy_programs(place)
    (place / "srv/mine").write_text("mine\n")
    os.chown(place / "srv/mine", 1500, 1700)
    (place / "work/old").write_text("old\n")
    for here, folders, files in os.walk(place):
        for name in (*folders, *files):
            path = Path(here) / name
            seen = path.lstat()
            os.chown(path, seen.st_uid + 300000, seen.st_gid + 300000, follow_symlinks=False)
    store.write_json(place.with_name(place.name + ".json"), {"image": "sha256:" + "0" * 64})
    yield home, place
    with connected() as client, contextlib.suppress(docker.errors.ImageNotFound):
        client.api.remove_image(f"{container_images.REPOSITORY}:{place.name}", force=True)


@pytest.mark.container
def test_an_image_that_the_engine_lost_is_given_back_from_its_tree(container, client, owned):
    home, place = owned
    sandbox = ContainerSandbox(home)
    sandbox._traits = container._traits
    seen = sandbox.run(sh("stat -c %u:%g /srv/mine /usr/bin/env; id -u", base=place))
    assert seen.stdout == b"1500:1700\n0:0\n0\n", seen
    sandbox.close()


@pytest.mark.container
def test_a_tree_without_its_owners_cannot_stand_for_an_image(container, tmp_path, monkeypatch):
    place = tmp_path / "images/lost"
    place.mkdir(parents=True)
    monkeypatch.setattr(
        container_images.idmaps, "current", lambda: IdMaps(ROW, ROW, {}, 0, ranged=False)
    )
    with pytest.raises(SandboxUnavailableError) as caught:
        container.run(sh("true", base=place))
    assert caught.value.code == "sandbox.image_gone"
    assert "--no-cache" in caught.value.hint


@pytest.mark.container
def test_what_the_image_has_where_a_folder_of_ours_goes_is_covered(container, owned, tmp_path):
    home, place = owned
    sandbox = ContainerSandbox(home)
    sandbox._traits = container._traits
    (tmp_path / "new").write_text("new\n")
    seen = sandbox.run(
        sh(
            "ls /work /srv; echo mine >/srv/out",
            base=place,
            mounts=(Mount("/work", tmp_path, "overlay"), Mount("/srv", None, "scratch")),
            collect=("/srv/out",),
        )
    )
    assert seen.stdout == b"/srv:\n\n/work:\nnew\n", seen
    assert seen.collected == {"/srv/out": b"mine\n"}
    sandbox.close()


@pytest.mark.container
def test_an_image_without_a_shell_is_a_result(container, client, tmp_path):
    place = tmp_path / "images/bare"
    place.mkdir(parents=True)
    (place / "file").write_text("alone\n")
    archive = tmp_path / "bare.tar"
    with archive.open("wb") as file:
        write_tree(place, 0, file)
    name = f"{container_images.REPOSITORY}:bare"
    client.api.import_image_from_file(str(archive), repository=name)
    try:
        seen = container.run(sh("true", base=place))
        assert seen.exit_code == 127
        assert b"no /bin/sh" in seen.stderr
    finally:
        client.api.remove_image(name, force=True)


# What is found out, without an engine.


@pytest.mark.parametrize(
    ("said", "remapped"),
    [
        ("         0 2147483648      65536\n", True),
        ("         0          0 4294967295\n", False),
        ("         0       1000          1\n         1     100000      65536\n", True),
        ("", False),
    ],
)
def test_ids_of_its_own_are_read_from_the_map(said, remapped):
    assert container_traits._is_remapped(said) is remapped


class Engine:
    def __init__(self, options=()):
        self.options = list(options)

    def info(self):
        return {"SecurityOptions": self.options}


@pytest.fixture
def answers(monkeypatch):
    """Engines of every kind, as what they run and what they refuse."""

    def place(*, userns=True, inline=False, path=True, sees=True, quota=False):
        def runs(_client, _image, option, found):
            if found.userns and not userns:
                raise docker.errors.APIError("no")
            for profile in option.get("SecurityOpt", []):
                if not (path if "/seccomp.json" in profile else inline):
                    raise docker.errors.APIError("no")
            if option.get("StorageOpt") and not quota:
                raise docker.errors.APIError("no")
            first = "2147483648" if found.userns else "0"
            said = f"0 {first} 65536\n"
            for mount in option.get("Mounts", []):
                if sees:
                    said += Path(mount["Source"]).read_text()
            return said

        monkeypatch.setattr(container_traits, "_run", runs)
        monkeypatch.setattr(container_traits, "_shows_layers", lambda *_: sees)

    return place


def test_an_engine_with_everything(answers, tmp_path):
    answers(inline=True, quota=True)
    seen = find_traits(Engine(), "image", tmp_path)
    assert (seen.remapped, seen.shared, seen.quota) == (True, True, True)
    assert seen.profile.startswith('seccomp={"')
    capability = provider._able("container", seen)
    assert (capability.ownership, capability.limits["disk_bytes"]) == (True, "hard")
    assert capability.limits["files"] == "soft"
    assert "disk" not in capability.reason


def test_an_engine_whose_filter_is_a_file(answers, tmp_path):
    answers()
    seen = find_traits(Engine(), "image", tmp_path)
    assert seen.profile == f"seccomp={(tmp_path / 'container/seccomp.json').resolve()}"


def test_an_engine_without_ranges_of_ids(answers, tmp_path):
    answers(userns=False)
    seen = find_traits(Engine(), "image", tmp_path)
    assert (seen.remapped, seen.userns, seen.shared) == (False, "", True)


def test_a_rootless_engine_needs_no_ranges(answers, tmp_path):
    answers(userns=False)
    seen = find_traits(Engine(["name=seccomp", "name=rootless"]), "image", tmp_path)
    assert (seen.remapped, seen.userns) == (True, "")


def test_an_engine_on_another_machine_gets_copies_and_its_own_filter(answers, tmp_path):
    answers(sees=False, path=False)
    seen = find_traits(Engine(), "image", tmp_path)
    assert (seen.shared, seen.profile) == (False, "")
    capability = provider._able("container", seen)
    assert capability.limits["system_calls"] == "none"
    assert capability.limits["read_only"] == capability.limits["files"] == "none"
    assert "each command gets copies" in capability.reason


def test_a_report_of_foreign_words_is_read_as_far_as_it_makes_sense():
    text = (
        b"peak 7\nkilled 2\nmicroseconds 1500000\nnonsense\npeak x\nkilled 9999999999999999999999\n"
    )
    seen = container_shim.read_report(text)
    assert (seen.peak_bytes, seen.kills, seen.cpu_s) == (7, 2, 1.5)
    assert container_shim.read_report(None) == container_shim.Report()
    assert container_shim.read_report(b"nanoseconds 2000000000\n").cpu_s == 2.0


def test_a_layer_is_measured_without_following_links(tmp_path):
    (tmp_path / "layer/deep").mkdir(parents=True)
    (tmp_path / "layer/deep/file").write_bytes(b"x" * 10_000)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/big").write_bytes(b"x" * 1_000_000)
    (tmp_path / "layer/link").symlink_to(tmp_path / "outside")
    size, count = measure(tmp_path / "layer", 100)
    assert count == 3
    assert 10_000 <= size < 100_000
    assert measure(tmp_path / "layer", 1)[1] > 1
    assert measure(tmp_path / "none", 1) == (0, 0)
