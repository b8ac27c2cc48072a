from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg
import pytest

from qualityhub.engine.errors import ConflictError, MachineryError
from qualityhub.standalone import pgbinaries
from qualityhub.standalone.pgcluster import Cluster
from qualityhub.standalone.postgres import SERVICE_UID, EmbeddedPostgres
from qualityhub.standalone.process import is_running, start_time, wait_gone

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root changes its user id")


@pytest.fixture
def server(open_dir):
    server = EmbeddedPostgres(open_dir / "pg")
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def shared():
    """A server for tests that only look; started once."""
    folder = Path(tempfile.mkdtemp(prefix="qh-test-", dir="/tmp"))
    folder.chmod(0o755)
    with EmbeddedPostgres(folder / "pg") as server:
        yield server
    shutil.rmtree(folder)


def one(url, query, *args):
    with psycopg.connect(url, connect_timeout=5) as connection:
        row = connection.execute(query, args).fetchone()
        return row if len(row) > 1 else row[0]


def test_a_restart_keeps_what_was_committed(server):
    with psycopg.connect(server.url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 'ünïcode' AS word")
    server.stop()
    assert one(server.start(), "SELECT word FROM kept") == "ünïcode"


def test_what_was_committed_survives_a_killed_server(server):
    with psycopg.connect(server.url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT generate_series(1, 1000) AS n")
    server.process.kill()
    server.process.wait()
    assert (server.data_dir / "data" / "postmaster.pid").exists()
    assert one(server.start(), "SELECT count(*) FROM kept") == 1000


def test_the_application_is_no_superuser_and_owns_its_database(shared):
    role = "SELECT rolname, rolsuper, rolcreatedb FROM pg_roles WHERE rolname = current_user"
    assert one(shared.url, role) == ("qualityhub", False, True)
    owner = "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = current_database()"
    assert one(shared.url, owner) == "qualityhub"


def test_settings_that_keep_data_safe_are_on(shared):
    for name in ("fsync", "full_page_writes", "synchronous_commit", "data_checksums"):
        assert one(shared.url, "SELECT current_setting(%s)", name) == "on"
    assert one(shared.url, "SELECT current_setting('server_encoding')") == "UTF8"
    assert one(shared.url, "SELECT current_setting('password_encryption')") == "scram-sha-256"
    locale = "SELECT datlocprovider, datlocale FROM pg_database WHERE datname = current_database()"
    assert one(shared.url, locale) == ("b", "C.UTF-8")


def test_nothing_listens_on_tcp_and_the_socket_is_private(shared):
    assert one(shared.url, "SELECT current_setting('listen_addresses')") == ""
    listening = {
        line.split()[9]
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    }
    held = [str(fd.readlink()) for fd in Path(f"/proc/{shared.pid}/fd").iterdir()]
    sockets = {name.removeprefix("socket:[")[:-1] for name in held if name.startswith("socket:")}
    assert sockets
    assert not sockets & listening
    folder = shared.data_dir / "run"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / ".s.PGSQL.5432").stat().st_mode) == 0o700
    assert stat.S_IMODE((shared.data_dir / "data").stat().st_mode) == 0o700


def test_passwords_are_private_files_and_are_asked_for(shared):
    for name in ("postgres-password", "postgres-superuser-password"):
        path = shared.data_dir / "secrets" / name
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert len(path.read_text().strip()) >= 40
    wrong = shared.url.replace(shared.url.split(":")[2].split("@")[0], "wrong")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong, connect_timeout=5)


def test_a_secret_that_others_can_read_stops_the_start(server):
    secret = server.data_dir / "secrets" / "postgres-password"
    secret.chmod(0o644)
    with pytest.raises(ConflictError) as caught:
        _ = server.url
    assert caught.value.code == "secret.open"
    assert f"chmod 600 {secret}" in caught.value.hint


@as_root
def test_root_runs_it_as_an_unprivileged_id_without_touching_parent_folders(open_dir):
    before = stat.S_IMODE(open_dir.stat().st_mode)
    users = Path("/etc/passwd").read_bytes()
    with EmbeddedPostgres(open_dir / "pg") as server:
        status = Path(f"/proc/{server.pid}/status").read_text()
        ids = next(line.split()[1:] for line in status.splitlines() if line.startswith("Uid:"))
        assert ids == [str(SERVICE_UID)] * 4
        groups = next(line for line in status.splitlines() if line.startswith("Groups:"))
        assert groups.split()[1:] == []
    assert stat.S_IMODE(open_dir.stat().st_mode) == before
    assert Path("/etc/passwd").read_bytes() == users


@as_root
def test_a_folder_the_unprivileged_id_cannot_reach_is_refused_with_the_way_out(open_dir):
    closed = open_dir / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(ConflictError) as caught:
        EmbeddedPostgres(closed / "pg").start()
    assert caught.value.code == "postgres.unreachable"
    assert str(closed) in caught.value.message
    assert "QH_HOME" in caught.value.hint
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


@as_root
def test_programs_out_of_reach_are_copied_once_and_work(open_dir, tmp_path):
    # pytest's own folder is closed to the id, as a virtual environment below /root would be.
    package = pgbinaries.find_binaries().parents[1]
    for name in (package.name, f"{package.name}.libs"):
        (tmp_path / name).symlink_to(package.parent / name)
    hidden = tmp_path / package.name / f"pginstall{pgbinaries.MAJOR}" / "bin"
    server = EmbeddedPostgres(open_dir / "pg", binaries=hidden, runtime_dir=open_dir / "runtime")
    with server:
        assert server.binaries.is_relative_to(open_dir / "runtime")
        assert one(server.url, "SELECT 1") == 1
    copied = server.binaries.stat().st_ino
    with EmbeddedPostgres(
        open_dir / "pg", binaries=hidden, runtime_dir=open_dir / "runtime"
    ) as again:
        assert again.binaries.stat().st_ino == copied


def test_data_of_another_major_version_is_refused_and_left_alone(server):
    server.stop()
    version = server.data_dir / "data" / "PG_VERSION"
    version.write_text("17\n")
    before = sorted((path.name, path.stat().st_mtime_ns) for path in version.parent.iterdir())
    with pytest.raises(ConflictError) as caught:
        server.start()
    assert caught.value.code == "postgres.other_major"
    assert "PostgreSQL 17" in caught.value.message
    assert "pg_dump" in caught.value.hint
    after = sorted((path.name, path.stat().st_mtime_ns) for path in version.parent.iterdir())
    assert after == before


def test_files_that_are_no_cluster_are_refused(open_dir):
    data = open_dir / "pg" / "data"
    data.mkdir(parents=True)
    (data / "letter.txt").write_text("dear diary")
    with pytest.raises(ConflictError) as caught:
        EmbeddedPostgres(open_dir / "pg").start()
    assert caught.value.code == "postgres.not_a_cluster"
    assert (data / "letter.txt").read_text() == "dear diary"


def test_a_pid_file_naming_a_stranger_does_not_block_the_start(server):
    server.stop()
    pid_file = server.data_dir / "data" / "postmaster.pid"
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as stranger:
        pid_file.write_text(f"{stranger.pid}\n{server.data_dir / 'data'}\n")
        try:
            assert one(server.start(), "SELECT 1") == 1
        finally:
            stranger.kill()


def test_a_running_server_is_not_started_over(server, monkeypatch):
    # The real wait is for a server that is going already; this one stays.
    monkeypatch.setattr("qualityhub.standalone.pgcluster.wait_gone", lambda *_: False)
    with pytest.raises(ConflictError) as caught:
        Cluster(server.data_dir / "data", None).check_not_running()
    assert caught.value.code == "postgres.running"
    assert str(server.pid) in caught.value.message


def test_a_failed_start_says_what_the_server_said(server):
    server.stop()
    broken = EmbeddedPostgres(server.data_dir, settings={"max_connections": "many"})
    with pytest.raises(MachineryError) as caught:
        broken.start()
    assert caught.value.code == "postgres.start_failed"
    assert "max_connections" in caught.value.message
    with pytest.raises(MachineryError, match="not running"):
        _ = broken.url


def test_an_interrupted_first_start_leaves_nothing_half_made(open_dir, monkeypatch):
    server = EmbeddedPostgres(open_dir / "pg")

    def interrupted(_self, _root):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Cluster, "_hand_over", interrupted)
        with pytest.raises(KeyboardInterrupt):
            server.prepare()
    assert sorted(path.name for path in (open_dir / "pg").iterdir()) == ["secrets"]
    with server:
        assert one(server.url, "SELECT 1") == 1


def test_a_path_too_long_for_a_socket_still_works(open_dir):
    deep = open_dir / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    server = EmbeddedPostgres(deep)
    with server:
        assert one(server.url, "SELECT 1") == 1
        borrowed = server._socket_dir
        assert not borrowed.is_relative_to(open_dir)
    assert not borrowed.exists()


def test_it_ends_cleanly_when_its_starter_is_killed(open_dir, run_python):
    starter = run_python(
        "import sys, time; from pathlib import Path\n"
        "from qualityhub.standalone.postgres import EmbeddedPostgres\n"
        "server = EmbeddedPostgres(Path(sys.argv[1])); server.start()\n"
        "print(server.pid, flush=True); time.sleep(60)",
        open_dir / "pg",
    )
    pid = int(starter.stdout.readline())
    started = start_time(pid)
    assert is_running(pid, started)
    starter.send_signal(signal.SIGKILL)
    assert wait_gone(pid, started, 10)
    assert "database system is shut down" in (open_dir / "pg" / "postgres.log").read_text()


def test_only_the_extensions_every_database_has_are_there(shared):
    names = "SELECT array_agg(name::text ORDER BY name) FROM pg_available_extensions"
    assert one(shared.url, names) == ["plpgsql", "vector"]


def test_a_missing_wheel_names_both_ways_out(monkeypatch):
    monkeypatch.setattr(pgbinaries, "PACKAGE", "no_such_package_here")
    with pytest.raises(MachineryError) as caught:
        pgbinaries.find_binaries()
    assert caught.value.code == "postgres.missing"
    assert "qualityhub[standalone]" in caught.value.hint
    assert "QH_DATABASE_URL" in caught.value.hint


def test_stopping_does_not_wait_for_idle_clients(server):
    connection = psycopg.connect(server.url)
    connection.execute("SELECT 1")
    began = time.monotonic()
    server.stop()
    assert time.monotonic() - began < 5
    assert server.process is None
    connection.close()
