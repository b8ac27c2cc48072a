# ruff: noqa: INP001 - a script, not a package.
"""Pictures of the demo's pages: ``screenshots.py [FOLDER]``, by default ``build/screenshots``.

Fills a hub of its own with the demo, in a temporary folder, and takes every page wide and narrow,
light and dark. Needs Chromium. Exits 1 where a page complains in the browser's console or is wider
than the window.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

CHROMIUM = next(
    (
        found
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (found := shutil.which(name))
    ),
    "",
)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
VIEWS = (
    ("wide-light", 1280, "light"),
    ("wide-dark", 1280, "dark"),
    ("narrow-light", 390, "light"),
    ("narrow-dark", 390, "dark"),
)


def main(folder: Path) -> int:
    """Make the hub, take the pictures, return the exit code."""
    if not CHROMIUM:
        sys.stderr.write("There is no Chromium on the PATH.\n")
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    # Not below this user's home: as root, server and sandbox take ids that may not enter there.
    home = Path(tempfile.mkdtemp(prefix="qh-pictures-", dir="/tmp"))
    home.chmod(0o755)
    try:
        with database(home / "postgres"):
            return take(home, folder)
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def database(folder: Path) -> Iterator[None]:
    """Start a server and point the settings at it."""
    from qualityhub.standalone.postgres import EmbeddedPostgres  # noqa: PLC0415

    folder.mkdir()
    with EmbeddedPostgres(folder, settings={"fsync": "off"}) as server:
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "qualityhub.settings",
            "QH_DATABASE_URL": server.url,
            "QH_HOME": str(folder.parent),
            "QH_LOG_LEVEL": "warning",
            "QH_SECRET_KEY": secrets.token_hex(32),
        }
        yield


def take(home: Path, folder: Path) -> int:
    """Fill the hub, serve it, and photograph it."""
    import django  # noqa: PLC0415

    django.setup()
    from django.core.management import call_command  # noqa: PLC0415

    from qualityhub.accounts.services import first_run_ensure, sign_in_link_create  # noqa: PLC0415
    from qualityhub.standalone.demo.loader import load_demo  # noqa: PLC0415

    call_command("migrate", verbosity=0)
    first = first_run_ensure("admin@localhost", "Demo Lab")
    with worker():
        load_demo(first.team, home, lambda line: sys.stderr.write(f"{line}\n") and None)
    show_workers()
    with served() as address:
        return photograph(address, sign_in_link_create(first.user), pages(), folder)


@contextmanager
def worker() -> Iterator[None]:
    """Inspect and decide what waits, in a thread, as a worker would."""
    from qualityhub.gates.selectors import gate_waiting_ids  # noqa: PLC0415
    from qualityhub.gates.services import gate_decide  # noqa: PLC0415
    from qualityhub.inspections.bench import Bench  # noqa: PLC0415
    from qualityhub.inspections.draining import drain  # noqa: PLC0415
    from qualityhub.platform import queue  # noqa: PLC0415

    # Nobody listens to a broker here: the thread looks by itself.
    queue.send = lambda *_, **__: True  # type: ignore[assignment]
    ended = threading.Event()

    def work() -> None:
        bench = Bench("pictures")
        while not ended.is_set():
            drain(bench, 5)
            for gate in gate_waiting_ids(older_than_s=0):
                gate_decide(gate)
            ended.wait(0.2)
        bench.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def show_workers() -> None:
    """Show two workers of this host: one at rest, one that pauses."""
    from qualityhub.inspections.offers import host_offer  # noqa: PLC0415
    from qualityhub.inspections.workers import worker_beat, worker_paused  # noqa: PLC0415

    for name in ("inspect@alpha", "inspect@beta"):
        worker_beat(name, host_offer(f"pictures-{name}"), 2)
    worker_paused("pictures-inspect@beta", "OSError: No space left on device", 600)


@contextmanager
def served() -> Iterator[str]:
    """Serve the hub on a free port of the loopback."""
    from socketserver import ThreadingMixIn  # noqa: PLC0415
    from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server  # noqa: PLC0415

    from django.core.wsgi import get_wsgi_application  # noqa: PLC0415

    class Threaded(ThreadingMixIn, WSGIServer):
        """Browsers ask for several files at once."""

        daemon_threads = True

    class Quiet(WSGIRequestHandler):
        """Says nothing about every request."""

        def log_message(self, *_: Any) -> None:
            """Keep quiet."""

    server = make_server(
        "127.0.0.1", 0, get_wsgi_application(), server_class=Threaded, handler_class=Quiet
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def pages() -> dict[str, str]:
    """Return the paths to photograph by name."""
    from qualityhub.gates.models import Gate  # noqa: PLC0415
    from qualityhub.inspections.models import Inspection  # noqa: PLC0415

    gate = Gate.objects.latest("id")
    bad = Inspection.objects.filter(verdict="rejected", domain__slug="3d").latest("id")
    part = Inspection.objects.filter(verdict="partial").latest("id")
    trial = part.trials.filter(record__isnull=False).earliest("id")
    return {
        "overview": "/",
        "domain": "/domains/finance/",
        "environment": f"/environments/{bad.version.environment.public_id}/",
        "inspection": f"/inspections/{part.public_id}/",
        "findings": f"/inspections/{part.public_id}/findings/",
        "inspections": "/inspections/",
        "trial": f"/trials/{trial.key}/",
        "workers": "/workers/",
        "gate": f"/gates/{gate.public_id}/",
        "gates": "/gates/",
        "checkpoints": "/checkpoints/",
        "audits": "/audits/",
        "rules": "/rules/",
        "rule": "/rules/VER002/",
        "tokens": "/tokens/",
        "upload": "/upload/",
    }


def photograph(address: str, link: str, paths: dict[str, str], folder: Path) -> int:
    """Take every page in every view; return 1 where one complained."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    complaints: list[str] = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        context = browser.new_context(base_url=address)
        page = context.new_page()
        page.goto(link)
        page.click("main button")
        state = context.storage_state()
        for view, width, theme in VIEWS:
            context = browser.new_context(
                base_url=address,
                storage_state=state,
                viewport={"width": width, "height": 900},
                color_scheme="dark" if theme == "dark" else "light",
            )
            page = context.new_page()
            page.on(
                "console",
                lambda message: (
                    complaints.append(message.text)
                    if message.type in {"error", "warning"}
                    else None
                ),
            )
            for name, path in paths.items():
                page.goto(path)
                if name == "gate":
                    page.wait_for_selector("[data-drawn]")
                if page.evaluate("document.documentElement.scrollWidth") > width:
                    complaints.append(f"{path} is wider than {width}")
                page.screenshot(path=folder / f"{name}-{view}.png", full_page=True)
            context.close()
        browser.close()
    for complaint in complaints:
        sys.stderr.write(f"{complaint}\n")
    sys.stderr.write(f"{len(paths) * len(VIEWS)} pictures in {folder}\n")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "screenshots"))
