from __future__ import annotations

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

DRAWN = "[data-drawn]"


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (390, "dark")])
def test_pages_fit_and_complain_of_nothing(open_page, hub, complaints, width, theme):
    page = open_page(width=width, theme=theme)
    for name, path in hub.items():
        assert page.goto(path).status == 200, name
        if name == "gate":
            page.wait_for_selector(DRAWN)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{name} is {wide} wide"
        assert page.locator("h1").count() == 1, name
    assert complaints == []


def test_the_chart_is_drawn_whole_with_a_mark_per_domain(open_page, hub):
    page = open_page(width=390)
    page.goto(hub["gate"])
    page.wait_for_selector(DRAWN)
    box = page.locator("[data-figure]")
    assert box.get_attribute("role") == "img"
    assert box.get_attribute("aria-label").startswith("Interval chart of 2 domains")
    assert page.locator(".scatterlayer .errorbars .xerror").count() == 2
    page.set_viewport_size({"width": 700, "height": 500})
    page.wait_for_timeout(400)
    inside, outside = (
        page.locator(name).first.bounding_box() for name in (".main-svg", "[data-figure]")
    )
    assert inside["height"] > 200
    assert inside["y"] + inside["height"] <= outside["y"] + outside["height"]


def test_the_theme_is_switched_kept_and_reaches_the_chart(open_page, hub):
    page = open_page(theme="light")
    page.goto(hub["gate"])
    page.wait_for_selector('[data-drawn="light"]')
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("[data-theme-toggle]")
    page.wait_for_selector('[data-drawn="dark"]')
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_the_keyboard_skips_to_the_content(open_page, hub):
    page = open_page()
    page.goto(hub["overview"])
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    assert page.locator(".skip").bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"


def test_findings_open_and_close_with_the_keyboard(open_page, hub):
    page = open_page()
    page.goto(hub["findings"])
    finding = page.locator("details.finding").first
    finding.locator("> summary").focus()
    assert finding.get_attribute("open") is None
    page.keyboard.press("Enter")
    assert finding.get_attribute("open") is not None
    assert finding.get_by_text("AssertionError: wrong").is_visible()
    page.keyboard.press("Enter")
    assert finding.get_attribute("open") is None


def test_progress_moves_and_the_report_follows(open_page, make_version, inspected):
    from qualityhub.inspections.models import Inspection
    from qualityhub.inspections.services import inspection_start

    version = make_version()
    inspection = inspection_start(version=version, actor="x")
    page = open_page()
    page.goto(f"/inspections/{inspection.public_id}/")
    text = page.locator("[data-progress-text]")
    Inspection.objects.filter(pk=inspection.pk).update(
        status="running", trials_total=40, trials_done=10
    )
    text.get_by_text("10 of 40 trials so far").wait_for()
    assert page.evaluate("document.querySelector('progress').value") == 10
    Inspection.objects.filter(pk=inspection.pk).update(status="queued")
    inspected(version)
    page.get_by_text("1 of 2 tasks may be used for training").wait_for()
    assert page.locator("[data-progress]").count() == 0


def test_without_script_pages_say_the_same(open_page, hub, version):
    from qualityhub.inspections.services import inspection_start

    page = open_page(script=False)
    page.goto(hub["gate"])
    assert page.get_by_text("The chart is drawn by script").is_visible()
    assert page.locator("table").first.get_by_text("math").is_visible()
    inspection = inspection_start(version=version, actor="x")
    page.goto(f"/inspections/{inspection.public_id}/")
    assert '<noscript><meta http-equiv="refresh"' in page.content()
    assert page.get_by_text("Inspection under way").is_visible()


def test_an_upload_leads_to_its_inspection(open_page, domain, complaints):
    page = open_page()
    page.goto("/upload/")
    page.get_by_label("Environment").fill("CartPole")
    page.get_by_label("or a reference").fill("gymnasium:CartPole-v1")
    page.get_by_role("button", name="Register and inspect").click()
    assert page.get_by_text("Choose a domain or name a new one").is_visible()
    page.get_by_label("Domain", exact=True).select_option("code")
    page.get_by_role("button", name="Register and inspect").click()
    page.get_by_role("heading", name="Inspection of CartPole").wait_for()
    # The browser notes the form's first answer, 422, as an error of its own.
    assert [text for text in complaints if "422" not in text] == []
