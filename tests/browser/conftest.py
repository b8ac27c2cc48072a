"""A real browser on a real server; skipped, with the reason, where there is no Chromium."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
)


def _fixtures_of_the_pages():
    path = Path(__file__).parents[1] / "dashboard" / "conftest.py"
    spec = importlib.util.spec_from_file_location("dashboard_fixtures", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_pages = _fixtures_of_the_pages()
inspected, gate_of, make_finding = _pages.inspected, _pages.gate_of, _pages.make_finding


@pytest.fixture(scope="session")
def chromium():
    """The one browser that all tests share."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"there is no {CHROMIUM}")
    # The driver keeps an event loop in this thread, which Django takes for asynchronous code.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=str(CHROMIUM), args=list(FLAGS))
        yield browser
        browser.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def complaints():
    """What the browser's console complained about, blocked scripts and styles included."""
    return []


@pytest.fixture
def open_page(chromium, live_server, contributor, complaints):
    """``open_page(width=390, theme="dark")`` returns a page of somebody signed in by a link."""
    from qualityhub.accounts.services import sign_in_link_create

    contexts = []

    def open_one(*, width=1280, theme="light", script=True):
        context = chromium.new_context(
            base_url=live_server.url,
            viewport={"width": width, "height": 900},
            color_scheme=theme,
            java_script_enabled=script,
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on(
            "console",
            lambda message: (
                complaints.append(f"{page.url}: {message.text}")
                if message.type in {"error", "warning"}
                else None
            ),
        )
        page.on("pageerror", lambda error: complaints.append(f"{page.url}: {error}"))
        page.goto(sign_in_link_create(contributor))
        page.click("main button")
        page.wait_for_url("/")
        return page

    yield open_one
    for context in contexts:
        context.close()


@pytest.fixture
def hub(db, make_version, inspected, gate_of, make_finding):
    """A judged environment and a decided gate; the paths of all pages."""
    version = make_version(tasks=["t1", "t2", "x" * 60])
    long = "a_very_long_name_without_any_break_" * 12
    inspection = inspected(
        version,
        findings=[
            make_finding(1),
            make_finding(2, code="DEP001", severity="warning", message=long, task="y" * 300),
        ],
    )
    gate = gate_of({"code": (0.6, 0.6), "math": (0.9, 0.4)})
    environment = version.environment
    return {
        "overview": "/",
        "domain": "/domains/code/",
        "environment": f"/environments/{environment.public_id}/",
        "inspections": "/inspections/",
        "inspection": f"/inspections/{inspection.public_id}/",
        "findings": f"/inspections/{inspection.public_id}/findings/",
        "gates": "/gates/",
        "gate": f"/gates/{gate.public_id}/",
        "rules": "/rules/",
        "rule": "/rules/VER001/",
        "audits": "/audits/",
        "checkpoints": "/checkpoints/",
        "tokens": "/tokens/",
        "upload": "/upload/",
    }
