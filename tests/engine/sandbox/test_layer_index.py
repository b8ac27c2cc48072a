"""What an index may do wrong, and whose fault it is."""

from __future__ import annotations

import base64
import functools
import http.server
import threading

import pytest

from qualityhub.engine.sandbox.interpreters import default_interpreter
from qualityhub.engine.sandbox.layers import Layer, LayerFailed, LayerUnavailable, build_layer


@pytest.fixture
def make(bwrap, tmp_path, packages):
    """Build a layer from the test's index."""

    def make(*requirements, **options):
        return build_layer(requirements, default_interpreter(), tmp_path / "home", bwrap, **options)

    return make


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder to those who know the password, and sends some files elsewhere."""

    def do_GET(self):
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        if self.server.broken and self.path.endswith(self.server.broken):
            self.send_error(503)
        elif self.path in self.server.moved:
            self.send_response(302)
            self.send_header("Location", self.server.moved[self.path])
            self.end_headers()
        elif self.server.word and self.headers.get("Authorization") != self.server.word:
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic")
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *words):
        pass


def _serve(folder, word=""):
    handler = functools.partial(Handler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.folder, server.word = folder, word
    server.asked, server.moved, server.broken = [], {}, ""
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    return server, thread


@pytest.fixture
def serve(packages, monkeypatch):
    """Serve a folder over HTTP on this host."""
    running = []
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")

    def serve(folder, word=""):
        running.append(_serve(folder, word))
        return running[-1][0]

    yield serve
    for server, thread in running:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def web(serve, packages, monkeypatch):
    """The test's index over HTTP, and the only one configured."""
    server = serve(packages)
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://127.0.0.1:{server.server_address[1]}/")
    return server


def test_a_yanked_version_is_taken_only_where_it_is_asked_for(make, packages, index):
    index.wheel(packages, "alpha", "1.0")
    index.wheel(packages, "alpha", "2.0", yanked="broken")
    assert make("alpha").lock == ("alpha==1.0",)
    assert make("alpha==2.0").lock == ("alpha==2.0",)
    seen = make("alpha>1")
    assert isinstance(seen, LayerFailed), seen
    assert seen.requirement == "alpha>1"
    assert "yanked" in seen.reason


def test_a_package_for_another_python_is_the_environments_fault(make, packages, index):
    index.wheel(packages, "alpha", "1.0", requires_python=">=4")
    seen = make("alpha")
    assert isinstance(seen, LayerFailed), seen
    assert "Python" in seen.reason
    assert seen.requirement == "alpha"


def test_another_content_than_announced_is_the_indexes_fault(make, packages, index):
    index.wheel(packages, "alpha", "1.0", sha256="0" * 64)
    seen = make("alpha")
    assert isinstance(seen, LayerUnavailable), seen
    assert seen.reason.endswith("alpha-1.0-py3-none-any.whl that is not the one it announced")


def test_a_file_that_is_announced_and_missing_is_the_indexes_fault(make, packages, index, serve):
    index.wheel(packages, "alpha", "1.0")
    # Locked, then lost: what is stored on this host does not help another one.
    layer = make("alpha")
    assert isinstance(layer, Layer)
    for kind in ("layers", "distributions"):
        for facts in (packages.parent / "home" / kind).glob("*.json"):
            facts.unlink()
    next((packages / "alpha").glob("*.whl")).unlink()
    seen = make("alpha")
    assert isinstance(seen, LayerUnavailable), seen
    assert "does not have it" in seen.reason


def test_an_index_without_hashes_is_locked_by_content(make, packages, index):
    index.wheel(packages, "alpha", "1.0", sha256="")
    layer = make("alpha")
    assert isinstance(layer, Layer), layer
    index.wheel(packages, "alpha", "1.0", sha256="", source="VALUE = 2\n")
    for kind in ("layers", "distributions"):
        for facts in (packages.parent / "home" / kind).glob("*.json"):
            facts.unlink()
    seen = make("alpha")
    assert isinstance(seen, LayerUnavailable), seen
    assert "not the one it announced" in seen.reason


def test_credentials_go_to_the_index_and_nowhere_else(make, packages, index, serve, monkeypatch):
    word = "Basic " + base64.b64encode(b"me:pass word").decode()
    elsewhere = packages.parent / "elsewhere"
    index.wheel(elsewhere, "beta", "1.0")
    index.wheel(packages, "alpha", "1.0", requires=("beta",))
    index.wheel(packages, "beta", "1.0")
    home, other = serve(packages, word), serve(elsewhere)
    there = f"http://127.0.0.1:{other.server_address[1]}/beta/beta-1.0-py3-none-any.whl"
    home.moved["/beta/beta-1.0-py3-none-any.whl"] = there
    address = f"127.0.0.1:{home.server_address[1]}"
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://me:pass%20word@{address}/")
    layer = make("alpha")
    assert isinstance(layer, Layer), layer
    assert layer.lock == ("alpha==1.0", "beta==1.0")
    assert ("/alpha/alpha-1.0-py3-none-any.whl", word) in home.asked
    assert other.asked
    assert {seen for _, seen in other.asked} == {None}
    stored = [
        path
        for path in (packages.parent / "home").rglob("*")
        if path.is_file() and b"pass word" in path.read_bytes().replace(b"%20", b" ")
    ]
    assert stored == []


def test_an_index_that_closes_halfway_is_not_the_environments_fault(make, packages, index, web):
    index.sdist(packages, "gamma", "1.0", setup=index.backend("gamma", "1.0"))
    web.broken = ".tar.gz"
    seen = make("gamma")
    assert isinstance(seen, LayerUnavailable), seen
    assert seen.reason == "no package index reachable"


@pytest.mark.parametrize("address", ["file:///etc/passwd", "ftp://127.0.0.1:9/x"])
@pytest.mark.parametrize("name", ["alpha-1.0-py3-none-any.whl", "alpha-1.0.tar.gz"])
def test_a_page_cannot_send_us_out_of_the_web(make, index, web, name, address):
    if name.endswith(".whl"):  # uv comes first, for its metadata
        index.wheel(web.folder, "alpha", "1.0")
    else:  # our own downloader does
        index.sdist(web.folder, "alpha", "1.0", setup=index.backend("alpha", "1.0"))
    web.moved[f"/alpha/{name}"] = address
    seen = make("alpha")
    assert isinstance(seen, LayerUnavailable), seen
    assert "alpha" in seen.reason


def test_a_link_of_a_page_leaves_a_configured_folder_for_nothing(make, packages, index):
    index.wheel(packages, "beta", "1.0")
    outside = packages.parent / "outside" / "alpha-1.0-py3-none-any.whl"
    outside.parent.mkdir()
    outside.write_bytes(index.wheel_bytes("alpha", "1.0"))
    index.wheel(packages, "alpha", "1.0", href=f"file://{outside}")
    seen = make("alpha")
    assert isinstance(seen, LayerUnavailable), seen
