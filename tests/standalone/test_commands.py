"""How the children are started."""

from __future__ import annotations

import pytest
from gunicorn.config import Config
from gunicorn.http.errors import LimitRequestLine
from gunicorn.http.parser import RequestParser

from qualityhub.standalone.commands import ChildEnvironment, web
from qualityhub.standalone.layout import Home


@pytest.fixture
def server(tmp_path, monkeypatch):
    """The web server's settings, as it reads them from its words."""
    for name in ("QH_SECRET_KEY", "QH_SECRET_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    home = Home(tmp_path / "home")
    home.create()
    command = web(ChildEnvironment(home, "http://127.0.0.1:1", "127.0.0.1"), 3)
    words = command.argv[command.argv.index("gunicorn") + 1 :]
    config = Config()
    for name, value in vars(config.parser().parse_args(words)).items():
        if value is not None and name in config.settings:
            config.set(name, value)
    return config


def asked(config, length):
    line = b"GET /" + b"x" * length + b" HTTP/1.1\r\nHost: hub\r\n\r\n"
    return next(RequestParser(config, iter([line]), ("127.0.0.1", 1)))


def test_a_long_path_is_answered_by_the_hub(server):
    assert len(asked(server, 5000).path) == 5001
    with pytest.raises(LimitRequestLine):
        asked(server, 9000)
