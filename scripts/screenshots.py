# ruff: noqa: INP001 - a script, not a package.
"""Pictures of the demonstration's pages: ``screenshots.py FOLDER``.

Starts a hub of its own with the demonstration, signs in by the printed link as a person would, and
takes the overview, a rejected environment, its findings and the gate report. Needs Chromium: that
of the system, or playwright's own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

ROOT = Path(__file__).resolve().parents[1]
WIDTH, HEIGHT = 1280, 900


def events(hub: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """Yield what the hub reports of note; its lines go to stderr."""
    for line in hub.stdout or ():
        entry = json.loads(line)
        if "event" in entry:
            yield entry
        else:
            sys.stderr.write(f"{entry['part']}: {entry['line']}\n")


def take(page: Page, target: Path, path: str) -> None:
    """Take a whole page, once its figures are drawn."""
    page.goto(path, wait_until="networkidle")
    page.screenshot(path=target, full_page=True)
    sys.stdout.write(f"{target}\n")


def visit(page: Page, base: str, sign_in: str, gate: str, folder: Path) -> None:
    """Sign in and take every picture."""
    page.goto(sign_in)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_load_state("networkidle")
    take(page, folder / "overview.png", f"{base}/")
    take(page, folder / "inspections.png", f"{base}/inspections/")
    links = page.locator("a[href^='/inspections/insp_']")
    rejected = page.locator("tr", has_text="rejected").locator("a[href^='/inspections/insp_']")
    chosen = (rejected if rejected.count() else links).first.get_attribute("href")
    take(page, folder / "inspection.png", f"{base}{chosen}")
    environment = page.locator("a[href^='/environments/env_']").first.get_attribute("href")
    take(page, folder / "environment.png", f"{base}{environment}")
    take(page, folder / "gate.png", f"{base}/gates/{gate}/")


def main(folder: Path) -> int:
    """Start the hub, take the pictures, end the hub."""
    folder.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="qh-screenshots-", dir="/tmp"))
    home.chmod(0o755)
    command = [sys.executable, "-m", "qualityhub", "up", "--demo", "--port", "0"]
    hub = subprocess.Popen(
        [*command, "--home", str(home / "home"), "--log-format", "json"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        seen = {}
        for event in events(hub):
            seen[event["event"]] = event
            if event["event"] == "demo":
                break
        if seen.get("demo", {}).get("status") != 0:
            sys.stderr.write("the demonstration was not loaded\n")
            return 1
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
                # Chromium's own sandbox refuses root; it only visits our own pages.
                args=["--no-sandbox"] if os.geteuid() == 0 else [],
            )
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            demo = seen["demo"]
            visit(page, seen["ready"]["url"], demo["sign_in"], demo["gate"], folder)
            browser.close()
        return 0
    finally:
        hub.terminate()
        for _ in events(hub):
            pass
        hub.wait()
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images")))
