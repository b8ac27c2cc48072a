from __future__ import annotations

import pytest

from qualityhub.engine.sandbox import images
from qualityhub.engine.sandbox.engine import engine_address
from qualityhub.engine.sandbox.images import ImageFailed, ImageTree, resolve_inside
from qualityhub.engine.sandbox.images.building import build_image


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
