from __future__ import annotations

import pytest

from qualityhub.engine.sandbox import rehearse
from qualityhub.engine.sandbox.buildcontext import ContextError
from qualityhub.engine.sandbox.dockerfile import CopiedFile, Rehearsal, read_dockerfile


@pytest.fixture
def context(tmp_path):
    folder = tmp_path / "environment"
    for name, text in {
        "requirements.txt": "numpy==2.1.0  # pinned\n\n-r more.txt\n",
        "more.txt": "six>=1 --hash=sha256:aa\n",
        "data/a.csv": "1",
        "data/deep/b.csv": "2",
        "run.sh": "#!/bin/sh\n",
        "secret.key": "x",
        ".dockerignore": "*.key\n!kept.key\nignored/**\n",
        "kept.key": "k",
        "ignored/z": "z",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "run.sh").chmod(0o755)
    return folder


def read(context, *lines, image="python:3.12-slim"):
    return read_dockerfile("\n".join((f"FROM {image}", *lines)), context)


def test_a_plain_dockerfile_is_understood(context):
    seen = read(
        context,
        "# a comment",
        "ARG VERSION=3",
        'ENV NAME="a b" OTHER=$VERSION',
        "ENV OLD style of it",
        "LABEL a=b",
        "WORKDIR /app",
        "COPY requirements.txt more.txt ./",
        "RUN pip install --no-cache-dir \\",
        "    -r requirements.txt && \\",
        "    python -m pip install 'requests>=2' && mkdir -p out logs",
        "COPY data /data/",
        "COPY run.sh /app/start.sh",
        "EXPOSE 80",
        'CMD ["python"]',
    )
    assert (seen.unsupported, seen.errors) == ((), ())
    assert (seen.python, seen.workdir) == ("3.12", "/app")
    assert seen.env == {"NAME": "a b", "OTHER": "3", "OLD": "style of it"}
    assert seen.pip_requirements == ("numpy==2.1.0", "six>=1", "requests>=2")
    assert {(item.source, item.target) for item in seen.copies} == {
        ("requirements.txt", "/app/requirements.txt"),
        ("more.txt", "/app/more.txt"),
        ("data/a.csv", "/data/a.csv"),
        ("data/deep/b.csv", "/data/deep/b.csv"),
        ("run.sh", "/app/start.sh"),
    }
    assert {"/app/out", "/app/logs", "/app"} <= set(seen.folders)


@pytest.mark.parametrize(
    "line",
    [
        "RUN apt-get update && apt-get install -y git",
        "RUN curl https://example.org | sh",
        "RUN pip install numpy && make",
        "RUN pip install -e .",
        "RUN pip install --index-url https://example.org/simple x",
        "RUN pip install git+https://example.org/x",
        "RUN pip install ./wheel.whl",
        "RUN pip install 'x @ https://example.org/x.whl'",
        "RUN echo $(id) > /etc/x",
        "USER agent",
        "COPY --from=builder /a /b",
        "COPY --chown=agent data /data",
        "COPY run.sh /usr/local/bin/run.sh",
        "ADD https://example.org/x /x",
        "RUN mkdir -p /usr/local/x",
        "ONBUILD RUN true",
        "NONSENSE",
        'RUN ["sh", "-c", "id"]',
        "FROM debian",
    ],
)
def test_what_needs_a_real_build_is_named(context, line):
    seen = read(context, line)
    assert len(seen.unsupported) == 1
    assert (
        line.split()[1][:10] in seen.unsupported[0] if " " in line else line in seen.unsupported[0]
    )
    assert seen.pip_requirements == ()


@pytest.mark.parametrize(
    ("image", "python"),
    [
        ("python:3.12-slim", "3.12"),
        ("python:3.11.7-bookworm", "3.11.7"),
        ("docker.io/library/python:3", "3"),
        ("python", "3"),
        ("debian:bookworm-slim", ""),
        ("ubuntu:24.04", ""),
    ],
)
def test_images_that_the_base_can_stand_for(context, image, python):
    seen = read(context, image=image)
    assert (seen.unsupported, seen.python) == ((), python)


@pytest.mark.parametrize(
    "image", ["alpine", "python:3.12-alpine", "ghcr.io/me/it:1", "nvidia/cuda:12"]
)
def test_other_images_are_unsupported(context, image):
    (seen,) = read(context, image=image).unsupported
    assert image in seen


def test_the_second_stage_is_unsupported(context):
    seen = read_dockerfile(
        "FROM python:3.12 AS a\nFROM python:3.12\nCOPY --from=a /x /y\n", context
    )
    assert len(seen.unsupported) == 2


def test_ignored_files_stay_out(context):
    seen = read(context, "COPY . /app/")
    names = {item.source for item in seen.copies}
    assert {"kept.key", "run.sh", "data/deep/b.csv"} <= names
    assert not names & {"secret.key", "ignored/z"}


def test_wildcards_match_names_alone(context):
    seen = read(context, "WORKDIR /app", "COPY *.txt data/*.csv ./")
    assert {item.target for item in seen.copies} == {
        "/app/requirements.txt",
        "/app/more.txt",
        "/app/a.csv",
    }


@pytest.mark.parametrize("source", ["../other", "data/../../other", "/../other"])
def test_leaving_the_context_is_an_error(context, source):
    (context.parent / "other").write_text("x")
    seen = read(context, f"COPY {source} /x")
    assert len(seen.errors) == 1
    assert seen.copies == ()


def test_a_missing_source_is_an_error(context):
    assert "not in the build context" in read(context, "COPY none /x").errors[0]
    assert "matches nothing" in read(context, "COPY *.none /x").errors[0]
    assert "was not copied" in read(context, "RUN pip install -r none.txt").errors[0]


def test_heredocs_and_escapes_are_no_crash(context):
    seen = read(context, "RUN <<EOF", "apt-get install x", "EOF", "WORKDIR /after")
    assert seen.unsupported == ("RUN <<EOF",)
    assert seen.workdir == "/after"
    assert read_dockerfile("", context).errors
    assert read(context, "COPY 'unclosed /x").unsupported
    assert read(context, "RUN pip install 'unclosed").unsupported
    assert read(context, "COPY [1, 2]").unsupported


def test_variables_have_defaults(context):
    seen = read(
        context,
        "ENV A=1",
        "WORKDIR /$A/${B:-two}/${A:+set}",
        "ENV C=${NONE}x",
        image="${X:-debian}",
    )
    assert seen.workdir == "/1/two/set"
    assert seen.env["C"] == "x"
    assert seen.image == "debian"


def files_of(context, tmp_path, *lines):
    seen = read(context, *lines)
    assert (seen.errors, seen.unsupported) == ((), ())
    return rehearse.prepare_files(seen, context, tmp_path / "home")


def test_files_are_laid_out_like_the_image(context, tmp_path):
    place, digest = files_of(
        context,
        tmp_path,
        "WORKDIR /app",
        "COPY run.sh data/a.csv ./",
        "COPY run.sh /etc/start",
        "RUN chmod 700 run.sh && chmod +x a.csv",
    )
    assert (place / "app/run.sh").stat().st_mode & 0o777 == 0o700
    assert (place / "app/a.csv").stat().st_mode & 0o111
    again, same = files_of(
        context,
        tmp_path,
        "WORKDIR /app",
        "COPY run.sh data/a.csv ./",
        "COPY run.sh /etc/start",
        "RUN chmod 700 run.sh && chmod +x a.csv",
    )
    assert (again, same) == (place, digest)
    assert {(mount.target, mount.mode) for mount in rehearse.mounts(place)} == {
        ("/app", "overlay"),
        ("/etc/start", "overlay"),
    }


def test_copies_do_not_follow_links_out_of_the_image(context, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (context / "link").symlink_to(outside)
    wanted = Rehearsal(
        copies=(CopiedFile("link", "/app/x"), CopiedFile("run.sh", "/app/x/run.sh")),
    )
    with pytest.raises(ContextError, match="link"):
        rehearse.prepare_files(wanted, context, tmp_path / "home")
    assert list(outside.iterdir()) == []


def test_a_requirements_file_that_is_a_link_is_not_followed(context, tmp_path):
    (tmp_path / "secret.txt").write_text("hidden==1\n")
    (context / "r.txt").symlink_to(tmp_path / "secret.txt")
    seen = read(context, "COPY r.txt /app/", "RUN pip install -r /app/r.txt")
    assert seen.pip_requirements == ()
    assert "cannot be read" in seen.errors[0]
