from __future__ import annotations

import hashlib
import secrets

import pytest

from qualityhub.engine.sandbox import images, store
from qualityhub.engine.sandbox.engine import connect, engine_address
from qualityhub.engine.sandbox.images import ImageFailed, ImageTree, buildlog, resolve_inside
from qualityhub.engine.sandbox.images.building import build_image, known_build
from qualityhub.engine.sandbox.images.buildlog import read_log
from qualityhub.engine.sandbox.images.importing import import_archive


@pytest.fixture
def engine(home):
    if not engine_address():
        pytest.skip("no container engine answers")


@pytest.fixture
def context(tmp_path):
    folder = tmp_path / "context"
    folder.mkdir()
    (folder / "hello.txt").write_text("hello\n")
    return folder


def write(context, *lines):
    (context / "Dockerfile").write_text("\n".join(("FROM python:3.11-slim", *lines)))
    return context


@pytest.mark.container
def test_a_built_image_becomes_a_tree_once(engine, context, home):
    write(context, "WORKDIR /app", "ENV A=b", "COPY hello.txt .", "RUN chmod u+s hello.txt")
    told = []
    tree = build_image(context, "Dockerfile", home, on_progress=told.append)
    assert isinstance(tree, ImageTree), tree
    assert (tree.path / "app/hello.txt").read_text() == "hello\n"
    assert not (tree.path / "app/hello.txt").stat().st_mode & 0o4000
    assert (tree.env["A"], tree.workdir) == ("b", "/app")
    assert images.is_program(tree.path, "/usr/local/bin/python3")
    assert told
    del told[:]
    assert build_image(context, "Dockerfile", home, on_progress=told.append) == tree
    assert told == []


@pytest.mark.container
def test_an_image_that_does_not_build_is_the_environments_fault(engine, context, home):
    seen = build_image(write(context, "RUN exit 7"), "Dockerfile", home)
    assert isinstance(seen, ImageFailed)
    assert not seen.host_fault
    assert "does not build" in seen.reason


@pytest.mark.container
def test_an_image_that_cannot_be_fetched_is_this_hosts_fault(engine, context, home):
    (context / "Dockerfile").write_text("FROM localhost:9/no/such:image\n")
    seen = build_image(context, "Dockerfile", home)
    assert isinstance(seen, ImageFailed)
    assert seen.host_fault
    assert seen.would_need


@pytest.mark.container
def test_a_build_tells_its_steps_and_keeps_its_whole_log(engine, context, tmp_path):
    noise = "RUN i=0; while [ $i -lt 3000 ]; do echo line-$i-of-a-long-log; i=$((i+1)); done"
    told = []
    tree = build_image(write(context, noise, "ENV A=b"), "Dockerfile", tmp_path, told.append)
    assert isinstance(tree, ImageTree), tree
    steps = [line for line in told if "step" in line]
    assert [line.split(":")[0] for line in steps] == [f"image step {n}/3" for n in (1, 2, 3)]
    assert "RUN i=0" in steps[1]
    again = build_image(context, "Dockerfile", tmp_path)
    assert again.log_file == tree.log_file
    log = read_log(tree.log_file)
    assert "STEP 3/3" in log.upper()
    assert len(tree.log) <= 8000


@pytest.mark.container
def test_the_log_of_a_build_that_failed_is_kept_too(engine, context, tmp_path):
    lines = ("RUN echo before-it-broke", "RUN exit 7")
    seen = build_image(write(context, *lines), "Dockerfile", tmp_path)
    assert isinstance(seen, ImageFailed)
    assert "before-it-broke" in read_log(seen.log_file)


@pytest.fixture
def base_name(engine):
    """A name of an image in the engine that is this test's own."""
    name = f"qh-test-base-{secrets.token_hex(4)}"
    client = connect(engine_address())

    def point(source):
        assert client.images.get(source).tag(name, "1")

    yield name, point
    client.images.remove(f"{name}:1", noprune=True)
    client.close()


@pytest.mark.container
def test_a_build_from_another_base_of_the_same_name_is_made_again(base_name, context, tmp_path):
    name, point = base_name
    (context / "Dockerfile").write_text(f"FROM docker.io/library/{name}:1\nCOPY hello.txt /\n")
    point("debian:bookworm-slim")
    first = build_image(context, "Dockerfile", tmp_path)
    assert isinstance(first, ImageTree), first
    told = []
    assert build_image(context, "Dockerfile", tmp_path, told.append) == first
    assert told == []
    point("python:3.12-slim")
    second = build_image(context, "Dockerfile", tmp_path)
    assert isinstance(second, ImageTree), second
    assert second.digest != first.digest
    assert images.is_program(second.path, "/usr/local/bin/python3")


@pytest.mark.container
def test_what_was_built_once_needs_no_engine_again(engine, context, tmp_path, monkeypatch):
    tree = build_image(write(context, "ENV ONCE=1"), "Dockerfile", tmp_path)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    assert known_build(context, "Dockerfile", tmp_path) == tree
    assert build_image(context, "Dockerfile", tmp_path) == tree
    (context / "hello.txt").write_text("changed\n")
    assert known_build(context, "Dockerfile", tmp_path) is None


@pytest.mark.container
def test_an_image_imported_from_an_archive_equals_the_one_exported_by_the_engine(
    engine, context, tmp_path
):
    lines = (
        "RUN useradd -u 1500 agent && mkdir -p /data/gone && echo a >/data/gone/a",
        "RUN cd /data && echo 1 >one && ln one two && ln -s two three && mkfifo p && chown agent p",
        "RUN rm -r /data/gone && echo more >>/data/two && mkdir /data/gone && chmod 4755 /bin/cat",
        "RUN rm -rf /var/log && mkdir -m 1777 /var/log && mv /etc/motd /etc/motd-moved; true",
        "USER agent",
        'ENTRYPOINT ["/usr/bin/env"]',
    )
    (context / "Dockerfile").write_text("\n".join(("FROM debian:bookworm-slim", *lines)))
    exported = build_image(context, "Dockerfile", tmp_path / "export")
    assert isinstance(exported, ImageTree), exported
    image = store.read_json(exported.path.with_name(exported.path.name + ".json"))["image"]
    client = connect(engine_address())
    archive = tmp_path / "saved.tar"
    with archive.open("wb") as file:
        for piece in client.images.get(image).save():
            file.write(piece)
    client.close()
    imported = import_archive(archive, tmp_path / "import").tree
    assert imported.digest == exported.digest
    for field in ("env", "workdir", "user", "entrypoint", "cmd"):
        assert getattr(imported, field) == getattr(exported, field)
    theirs, ours = rows(exported.path), rows(imported.path)
    # What every engine adds to a container that it creates.
    for name in ("etc/hosts", "etc/hostname", "etc/resolv.conf", ".dockerenv", "run/.containerenv"):
        if name not in ours:
            theirs.pop(name, None)
    assert {name for name in theirs if theirs[name] != ours.get(name)} == set()
    assert set(ours) == set(theirs)
    assert len(ours) > 5000


def rows(tree):
    """Return kind, mode, owner, content and links of everything in a tree."""
    found = {}
    twins = {}
    for path in sorted(tree.rglob("*")):
        seen = path.lstat()
        name = str(path.relative_to(tree))
        content = ""
        if path.is_symlink():
            content = str(path.readlink())
        elif path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            twins.setdefault(seen.st_ino, name)
        twin = twins.get(seen.st_ino, "")
        found[name] = (seen.st_mode, seen.st_uid, seen.st_gid, content, twin)
    return found


def test_a_log_keeps_its_head_and_its_tail(tmp_path, monkeypatch):
    monkeypatch.setattr(buildlog, "HEAD_BYTES", 1000)
    monkeypatch.setattr(buildlog, "TAIL_BYTES", 1000)
    told = []
    log = buildlog.BuildLog(told.append)
    log.take({"stream": "Step 1/2 : FROM x\n[2/3] STEP 2/"})
    log.take({"stream": "7: RUN  make\n"})
    for number in range(1000):
        log.take({"stream": f"line {number}\n"})
    log.take({"error": "it broke"})
    text = read_log(log.write(tmp_path / "log.zst"))
    assert told == ["image step 1/2: FROM x", "image stage 2/3 step 2/7: RUN make"]
    assert text.startswith("Step 1/2")
    assert text.endswith("it broke")
    assert "bytes left out" in text
    assert len(text) < 2200
    assert read_log(tmp_path / "missing") == ""
    (tmp_path / "broken").write_bytes(b"no log")
    assert read_log(tmp_path / "broken") == ""


def test_links_resolve_inside_the_tree(tmp_path):
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/tool").write_text("")
    (tmp_path / "usr/bin/tool").chmod(0o755)
    (tmp_path / "bin").symlink_to("/usr/bin")
    (tmp_path / "up").symlink_to("../../../../usr/bin/tool")
    (tmp_path / "loop").symlink_to("/loop")
    (tmp_path / "host").symlink_to("/etc/passwd")
    assert resolve_inside(tmp_path, "/bin/tool") == tmp_path / "usr/bin/tool"
    assert resolve_inside(tmp_path, "/up") == tmp_path / "usr/bin/tool"
    assert resolve_inside(tmp_path, "/loop") is None
    assert resolve_inside(tmp_path, "/host") is None
    assert images.is_program(tmp_path, "/bin/tool")
    assert not images.is_program(tmp_path, "/usr")
