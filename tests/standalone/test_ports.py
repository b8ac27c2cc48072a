from __future__ import annotations

import os
import socket

import pytest

from qualityhub.engine.errors import ConflictError, InvalidInputError
from qualityhub.standalone import ports


def test_a_taken_port_names_the_flag():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConflictError) as caught:
            ports.listen("127.0.0.1", port)
    assert caught.value.code == "up.port_taken"
    assert str(port) in caught.value.message
    assert "--port" in caught.value.hint


def test_a_port_is_free_again_right_after_use():
    with ports.listen("127.0.0.1", 0) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            server.accept()[0].close()
    ports.listen("127.0.0.1", port).close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open any port")
def test_a_port_of_the_system_is_refused_with_the_way_out():
    with pytest.raises(ConflictError) as caught:
        ports.listen("127.0.0.1", 81)
    assert caught.value.code == "up.port_forbidden"


@pytest.mark.parametrize("host", ["203.0.113.7", "no such host", "a" * 300])
def test_a_host_that_is_not_ours_is_refused(host):
    with pytest.raises(InvalidInputError) as caught:
        ports.listen(host, 0)
    assert caught.value.code == "up.bad_host"
    assert "--host" in caught.value.hint


@pytest.mark.parametrize(
    ("host", "inside"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("localhost", True),
        ("::1", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("hub.example.org", False),
    ],
)
def test_what_only_this_machine_reaches(host, inside):
    assert ports.is_loopback(host) is inside


def test_names_the_hub_answers_to():
    assert ports.reachable_names("127.0.0.1") == ["localhost", "127.0.0.1", "[::1]"]
    assert "10.0.0.1" in ports.reachable_names("10.0.0.1")
    assert "[fd00::1]" in ports.reachable_names("fd00::1")
    assert socket.gethostname() in ports.reachable_names("0.0.0.0")


def test_addresses_to_print():
    assert ports.public_url("127.0.0.1", 8400) == "http://127.0.0.1:8400"
    assert ports.public_url("::1", 8400) == "http://[::1]:8400"
    assert ports.public_url("0.0.0.0", 80) == f"http://{socket.gethostname()}:80"
