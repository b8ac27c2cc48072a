from __future__ import annotations

from pathlib import Path

import pytest

from qualityhub import env
from qualityhub.env import Reader, SettingsError, database_from_url


def code_of(call):
    with pytest.raises(SettingsError) as caught:
        call()
    assert caught.value.hint
    return caught.value.code


@pytest.mark.parametrize("value", ["1", "yes", "on", "TRUEE", "0"])
def test_only_true_and_false_are_booleans(value):
    reader = Reader({"QH_X": value})
    assert code_of(lambda: reader.boolean("QH_X", False, "help")) == "settings.not_boolean"


def test_booleans_default_and_ignore_case():
    assert Reader({}).boolean("QH_X", True, "help") is True
    assert Reader({"QH_X": "False"}).boolean("QH_X", True, "help") is False


@pytest.mark.parametrize("value", ["-1", "x", "1.5", "11", "²", "9" * 20])
def test_numbers_out_of_range_are_refused(value):
    reader = Reader({"QH_X": value})
    assert code_of(lambda: reader.integer("QH_X", 5, "help", high=10)) == "settings.not_integer"


@pytest.mark.parametrize(("value", "expected"), [("64MiB", 2**26), ("10", 10), ("2 GiB", 2**31)])
def test_sizes_have_units(value, expected):
    assert Reader({"QH_X": value}).size("QH_X", "1MiB", "help") == expected


@pytest.mark.parametrize("value", ["64MB", "-1", "1.5MiB", "MiB"])
def test_other_units_are_refused(value):
    assert code_of(lambda: Reader({"QH_X": value}).size("QH_X", "1MiB", "h")) == "settings.not_size"


def test_choice_names_the_nearest():
    reader = Reader({"QH_SANDBOX": "bwarp"})
    with pytest.raises(SettingsError, match="Did you mean bwrap"):
        reader.text("QH_SANDBOX", "auto", "help", choices=["auto", "bwrap"])


def test_secret_comes_from_the_variable_or_a_file(tmp_path):
    file = tmp_path / "key"
    file.write_text("from file\n")
    assert Reader({"QH_K": "plain"}).secret("QH_K", "help") == "plain"
    assert Reader({"QH_K_FILE": str(file)}).secret("QH_K", "help") == "from file"
    assert Reader({}).secret("QH_K", "help") is None
    both = Reader({"QH_K": "a", "QH_K_FILE": str(file)})
    assert code_of(lambda: both.secret("QH_K", "help")) == "settings.both"
    gone = Reader({"QH_K_FILE": str(tmp_path / "gone")})
    assert code_of(lambda: gone.secret("QH_K", "help")) == "settings.secret_unreadable"
    file.write_text("\n")
    empty = Reader({"QH_K_FILE": str(file)})
    assert code_of(lambda: empty.secret("QH_K", "help")) == "settings.secret_empty"


def test_relative_paths_are_refused():
    reader = Reader({"QH_HOME": "data"})
    call = lambda: reader.path("QH_HOME", Path("/x"), "help", shown="/x")  # noqa: E731
    assert code_of(call) == "settings.relative_path"


def test_misspelt_variables_are_noticed():
    reader = Reader({"QH_ALOWED_HOSTS": "x", "QH_TOKEN": "t", "HOME": "/"})
    reader.words("QH_ALLOWED_HOSTS", [], "help")
    assert reader.near_misses() == [("QH_ALOWED_HOSTS", "QH_ALLOWED_HOSTS")]


def test_socket_and_network_urls():
    socket = database_from_url("postgresql://qh:p%40ss@/hub?host=%2Ftmp%2Fa%20b")
    assert (socket["NAME"], socket["USER"], socket["PASSWORD"]) == ("hub", "qh", "p@ss")
    assert (socket["HOST"], socket["PORT"]) == ("/tmp/a b", "")
    network = database_from_url("postgres://u@db.example:6543/n?sslmode=require")
    assert (network["HOST"], network["PORT"]) == ("db.example", "6543")
    assert network["OPTIONS"] == {"sslmode": "require"}


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("sqlite:///x.db", "settings.not_postgresql"),
        ("mysql://h/x", "settings.not_postgresql"),
        ("postgresql://host", "settings.no_database"),
        ("postgresql://host:99999/x", "settings.bad_port"),
        ("postgresql://host/x?sslmod=off", "settings.unknown_option"),
    ],
)
def test_other_databases_are_refused(url, code):
    assert code_of(lambda: database_from_url(url)) == code


def test_passwords_do_not_reach_messages():
    for url in ("postgresql://u:hunter2@host", "sqlite://u:hunter2@/x"):
        with pytest.raises(SettingsError) as caught:
            database_from_url(url)
        assert "hunter2" not in caught.value.message + caught.value.hint


def test_reference_page_names_every_setting(settings):
    page = settings.ENV.page()
    root = Path(__file__).parents[2]
    assert page == (root / "docs/reference/settings.md").read_text(), "run manage.py settings_page"
    for name in settings.ENV.declared:
        assert f"`{name}`" in page


def test_default_home_of_root_is_the_systems(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert env.default_home() == Path("/var/lib/qualityhub")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert env.default_home().is_absolute()
    assert env.default_home() != Path("/var/lib/qualityhub")


def test_servers_refuse_to_start_without_a_secret_key(settings):
    from qualityhub.platform.checks import refuse_unfit_settings

    settings.DEBUG, settings.QH_SECRET_KEY_IS_EPHEMERAL = False, True
    assert code_of(refuse_unfit_settings) == "settings.no_secret_key"
    settings.QH_SECRET_KEY_IS_EPHEMERAL, settings.SECRET_KEY = False, "short"
    assert code_of(refuse_unfit_settings) == "settings.short_secret_key"
    settings.SECRET_KEY = "x" * 40
    refuse_unfit_settings()


def test_wrong_setting_ends_the_command_line_with_one_message(tmp_path):
    import subprocess
    import sys

    root = Path(__file__).parents[2]
    outcome = subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=root,
        env={"PATH": "/usr/bin:/bin", "QH_DEBUG": "yes", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert outcome.returncode == 2
    assert "QH_DEBUG is 'yes'" in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_labels_are_pairs():
    read = env.Reader({"A": " zone=a, disk=fast ,", "B": ""})
    assert read.labels("A", "help") == {"zone": "a", "disk": "fast"}
    assert read.labels("B", "help") == {}


@pytest.mark.parametrize("value", ["zone", "zone=", "=a", "zone=a b", "zone=a,zone=b", "a=b=c"])
def test_labels_that_are_none_stop_the_start(value):
    with pytest.raises(env.SettingsError) as caught:
        env.Reader({"A": value}).labels("A", "help")
    assert caught.value.code == "settings.not_a_label"


def test_path_that_is_not_set_is_none():
    assert env.Reader({}).path_if_set("A", "help", shown="") is None
    with pytest.raises(env.SettingsError):
        env.Reader({"A": "relative"}).path_if_set("A", "help", shown="")
