"""``qualityhub up``: one process that starts everything, watches it, and ends it in order."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qualityhub.engine.errors import MachineryError
from qualityhub.standalone import banner, commands, ports
from qualityhub.standalone.broker import EmbeddedValkey
from qualityhub.standalone.console import Console
from qualityhub.standalone.firstrun import FirstRunResult, parse_result
from qualityhub.standalone.layout import find_home
from qualityhub.standalone.parts import (
    Child,
    Command,
    Part,
    PartEndedError,
    Parts,
    ServerPart,
    StopRequestedError,
)
from qualityhub.standalone.postgres import EmbeddedPostgres
from qualityhub.standalone.process import start_time
from qualityhub.standalone.ready import readiness
from qualityhub.standalone.runstate import Instance

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

    from qualityhub.standalone.layout import Home

READY_TIMEOUT_S = 120
LAST_LINES = 15


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What ``qualityhub up`` was asked for.

    Attributes:
        host: Address to listen on.
        port: Port; 0 takes a free one.
        home: Data folder; ``None``: ``QH_HOME`` or the platform's place.
        workers: Batches that run at the same time.
        demo: Load the demonstration once ready.
        log_format: ``text`` or ``json``.
        verbose: Show every line of every part; the logs have them in any case.
    """

    host: str = "127.0.0.1"
    port: int = 8400
    home: Path | None = None
    workers: int = 2
    demo: bool = False
    log_format: str = "text"
    verbose: bool = False


def run(options: UpOptions, console: Console | None = None) -> int:
    """Start everything, stay until told to end, and end everything.

    Must be called by the main thread: signals end it, and children are tied to it.

    Args:
        options: What was asked for.
        console: Where lines go; default: stdout.

    Returns:
        Exit code: 0 ended as asked.

    Raises:
        QualityHubError: It could not start, or a part ended by itself; everything was stopped.
    """
    console = console or Console(options.log_format, verbose=options.verbose)
    # A wrong setting would stop every child; it stops the start here, at once and once.
    importlib.import_module("qualityhub.settings")
    began = time.monotonic()
    home = find_home(options.home)
    home.create()
    parts = Parts()
    with (
        Instance(home, ports.public_url(options.host, options.port)) as instance,
        contextlib.closing(ports.listen(options.host, options.port)) as server,
        _stop_on_signals(parts),
    ):
        port = server.getsockname()[1]
        instance.state.url = ports.public_url(options.host, port)
        instance.save()
        if instance.leftovers:
            console.say(f"cleaned up after a killed instance: {', '.join(instance.leftovers)}")
        up = _Up(options, home, console, parts, instance)
        try:
            up.start(server, port)
            up.announce(time.monotonic() - began)
            up.stay()
        except StopRequestedError:
            console.say("stopping")
        except PartEndedError as ended:
            _show_end(console, ended.part)
            raise MachineryError(
                "up.part_ended",
                f"{ended.sentence()}; everything else was stopped.",
                f"Its last lines are above; its log is {home.logs / (ended.part.name + '.log')}.",
            ) from None
        finally:
            instance.state.phase = "stopping"
            instance.save()
            parts.stop_all(console)
    console.say("stopped")
    return 0


class _Up:
    """One start, step by step."""

    def __init__(
        self, options: UpOptions, home: Home, console: Console, parts: Parts, instance: Instance
    ) -> None:
        self.options = options
        self.home = home
        self.console = console
        self.parts = parts
        self.instance = instance
        self.links: list[str] = []
        self.environment = commands.ChildEnvironment(home, instance.state.url, options.host)

    def start(self, server: socket.socket, port: int) -> None:
        """Start every part and wait until the hub is ready."""
        if not ports.is_loopback(self.options.host):
            self.console.say(
                f"warning: other machines can reach this hub on {self.options.host}:{port}, "
                "without encryption. Put a proxy with TLS in front and set QH_PUBLIC_URL."
            )
        self._start_servers()
        self.instance.state.url = self.environment.public_url
        first = self._set_up()
        self._add(commands.web(self.environment, server.fileno()))
        self._add(commands.worker(self.environment, self.options.workers))
        self._add(commands.beat(self.environment))
        self.links = [self.instance.state.url + path for path in first.links]
        self._wait_ready(port)

    def announce(self, seconds: float) -> None:
        """Say that the hub is ready, and load the demonstration if asked."""
        self.console.children_shown = True
        self.instance.state.phase = "ready"
        self.instance.save()
        url = self.instance.state.url
        self.console.event(
            "ready",
            banner.ready(self.console, url, self.links[0], self.home.root, seconds),
            url=url,
            sign_in=self.links[0],
            home=str(self.home.root),
            seconds=round(seconds, 1),
        )
        if self.options.demo:
            self._load_demo()

    def stay(self) -> None:
        """Stay until told to end."""
        while True:
            self.parts.pause(3600)

    # -- steps ----------------------------------------------------------------------------------

    def _start_servers(self) -> None:
        """Start database and broker side by side, unless they are somebody else's."""
        # By the main thread: children are tied to the life of the thread that starts them.
        broker = postgres = None
        if self.environment.own_database:
            postgres = EmbeddedPostgres(
                self.home.postgres,
                secrets_dir=self.home.secrets,
                runtime_dir=self.home.runtime,
                log_file=self.home.logs / "postgres.log",
            )
            self.console.say("starting the database")
            postgres.prepare()
            postgres.launch()
            self._took(ServerPart("postgres", postgres))
        if self.environment.own_broker:
            broker = EmbeddedValkey(self.home.broker, log_file=self.home.logs / "broker.log")
            self.console.say("starting the broker")
            broker.launch()
            self._took(ServerPart("broker", broker))
        if broker is not None:
            broker.wait_ready()
            self.environment.use_broker(broker.url)
        if postgres is not None:
            postgres.wait_ready()
            self.environment.use_database(postgres.url)
        self.parts.check()

    def _set_up(self) -> FirstRunResult:
        """Migrate and make the first team, in a child that sets Django up."""
        self.console.say("bringing the database up to date")
        read_end, write_end = os.pipe()
        command = commands.set_up(self.environment, write_end, links=2 if self.options.demo else 1)
        child = Child(command, self.home.logs, self.console)
        os.close(write_end)
        try:
            with os.fdopen(read_end, "rb") as pipe:
                self._wait_for(child)
                status = child.wait()
                if status != 0:
                    _show_end(self.console, child)
                    raise MachineryError(
                        "up.setup_failed",
                        f"The database could not be brought up to date (status {status}).",
                        f"Why is in the lines above, and in {self.home.logs / 'setup.log'}.",
                    )
                return parse_result(pipe.read(65536))
        finally:
            child.stop()

    def _wait_for(self, child: Child) -> None:
        """Wait for a child that ends by itself, watching the parts meanwhile."""
        while child.poll() is None:
            self.parts.pause(0.02)

    def _wait_ready(self, port: int) -> None:
        url = f"http://{commands.probe_host(self.options.host)}:{port}"
        deadline = time.monotonic() + READY_TIMEOUT_S
        missing: dict[str, str] = {}
        said = ""
        while True:
            self.parts.check()
            ready, missing = readiness(url)
            if ready:
                return
            waiting = ", ".join(sorted(missing))
            if waiting != said:
                self.console.say(f"waiting for: {waiting}")
                said = waiting
            if time.monotonic() >= deadline:
                detail = "; ".join(f"{name}: {why}" for name, why in sorted(missing.items()))
                raise MachineryError(
                    "up.not_ready",
                    f"The hub was not ready after {READY_TIMEOUT_S} s ({detail}).",
                    f"The logs are in {self.home.logs}. `qualityhub doctor` checks this machine.",
                )
            self.parts.pause(0.2)

    def _load_demo(self) -> None:
        """Load the demonstration in a child and show what it says."""
        began = time.monotonic()
        child = Child(commands.demo(self.environment), self.home.logs, self.console)
        try:
            self._wait_for(child)
            status = child.wait()
        finally:
            child.stop()
        seconds = time.monotonic() - began
        gate = _gate_of(child.last_lines(1)) if status == 0 else ""
        url, sign_in = self.instance.state.url, self.links[-1]
        self.console.event(
            "demo",
            banner.demo(
                self.console, sign_in=sign_in, url=url, gate=gate, status=status, seconds=seconds
            ),
            sign_in=sign_in,
            gate=gate,
            status=status,
            seconds=round(seconds, 1),
        )

    def _add(self, command: Command) -> None:
        self.console.say(f"starting {command.name}")
        self._took(Child(command, self.home.logs, self.console))

    def _took(self, part: Child | ServerPart) -> None:
        self.parts.add(part)
        if part.pid is not None:
            self.instance.state.children[part.name] = (part.pid, start_time(part.pid))
            self.instance.save()


@contextlib.contextmanager
def _stop_on_signals(parts: Parts) -> Iterator[None]:
    """Turn Ctrl-C, a polite kill and a closed terminal into an orderly end."""

    def ask(_number: int, _frame: object) -> None:
        parts.request_stop()

    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, ask) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show_end(console: Console, part: Part) -> None:
    """Show a part's last lines; during a start nobody has seen them yet."""
    console.say(f"last lines of {part.name}:")
    for line in part.last_lines(LAST_LINES):
        console.line(part.name, line)


def _gate_of(lines: list[str]) -> str:
    """Return the gate that the demonstration names in its last line; empty where it names none."""
    words = lines[-1].split() if lines else []
    return words[1] if len(words) == 2 and words[0] == "gate" else ""
