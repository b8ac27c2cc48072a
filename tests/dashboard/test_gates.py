from __future__ import annotations

import pytest

pytestmark = pytest.mark.django_db


@pytest.fixture
def blocked(gate_of):
    return gate_of({"code": (0.6, 0.6), "math": (0.9, 0.4)})


def test_the_list_filters_by_verdict(member, gate_of, text_of):
    bad = gate_of({"math": (0.9, 0.4)}, candidate="worse")
    good = gate_of({"math": (0.3, 0.9)}, candidate="better")
    assert (bad.verdict, good.verdict) == ("block", "promote")
    page = text_of(member.get("/gates/", {"verdict": "block"}))
    assert "worse" in page
    assert "better" not in page
    assert "better" in text_of(member.get("/gates/"))


def test_an_empty_list_says_how_to_gate(member, team, text_of):
    assert "No checkpoint was gated yet" in text_of(member.get("/gates/"))


def test_the_verdict_says_what_it_means_and_what_comes_next(member, blocked, text_of):
    page = text_of(member.get(f"/gates/{blocked.public_id}/"))
    assert "At least one domain, group or the whole got worse" in page
    assert "Look at the worst tasks" in page
    assert blocked.record in page


def test_the_table_has_the_numbers_of_the_report(member, blocked, text_of):
    page = text_of(member.get(f"/gates/{blocked.public_id}/"))
    table = page[page.index('id="domains"') : page.index('id="levels"')]
    assert table.index("math") < table.index("code")
    for part in ("90.0 %", "40.0 %", "−50.0", "100.0 %", "120"):  # noqa: RUF001
        assert part in table, part


def test_worst_tasks_and_costs_unfold(member, blocked, text_of):
    page = text_of(member.get(f"/gates/{blocked.public_id}/"))
    details = page[page.index('id="details"') :]
    assert "Tasks that lost most" in details
    assert 'href="https://traces.example.org/1"' in details
    assert "output tokens" in details


def test_traces_that_are_no_web_address_are_not_linked(member, gate_of, text_of):
    gate = gate_of({"math": (0.9, 0.4)}, trace="javascript:alert(1)//<b>")
    page = text_of(member.get(f"/gates/{gate.public_id}/"))
    assert "javascript:alert(1)//&lt;b&gt;" in page
    assert 'href="javascript' not in page


def test_the_figure_is_drawn_for_the_theme(member, blocked):
    path = f"/gates/{blocked.public_id}/figure.json"
    light, dark = member.get(path).json(), member.get(path, {"theme": "dark"}).json()
    assert {"data", "layout"} == set(light)
    assert light["layout"]["font"]["color"] != dark["layout"]["font"]["color"]
    assert "math" in light["layout"]["meta"]["alt"]


def test_the_chart_is_an_image_with_a_table_beside_it(member, blocked, text_of):
    page = text_of(member.get(f"/gates/{blocked.public_id}/"))
    assert f'data-figure="/gates/{blocked.public_id}/figure.json" role="img"' in page
    assert "/static/plotly/plotly.min.js" in page


def test_the_file_is_the_decision(member, blocked):
    response = member.get(f"/gates/{blocked.public_id}/report.json")
    assert response.json() == blocked.report
    assert response["Content-Disposition"].startswith("attachment")


def test_only_some_domains_unfold_and_the_one_asked_for(member, gate_of):
    domains = {f"d{number:02}": (0.5, 0.5) for number in range(25)}
    gate = gate_of(domains, tasks=20)
    path = f"/gates/{gate.public_id}/"
    shown = [detail.raw["domain"] for detail in member.get(path).context["details"]]
    assert len(shown) == 20
    hidden = min(set(domains) - set(shown))
    asked = member.get(path, {"domain": hidden}).context["details"]
    assert (asked[0].raw["domain"], asked[0].wanted) == (hidden, True)


def test_a_gate_that_waits_looks_again_by_itself(member, blocked, team, text_of):
    from qualityhub.gates.services import gate_start

    gate, _ = gate_start(
        team=team,
        candidate=list(blocked.candidate_runs.all()),
        baseline=list(blocked.baseline_runs.all()),
    )
    path = f"/gates/{gate.public_id}/"
    page = text_of(member.get(path))
    assert "A worker will decide it" in page
    assert 'http-equiv="refresh"' in page
    assert member.get(f"{path}figure.json").status_code == 404
    assert member.get(f"{path}report.json").status_code == 404


def test_a_gate_that_failed_says_why(member, blocked, text_of, hostile):
    from qualityhub.gates.models import Gate

    Gate.objects.filter(pk=blocked.pk).update(
        status="failed",
        report=None,
        verdict="",
        record="",
        error={"code": "gates.empty", "message": hostile},
    )
    page = text_of(member.get(f"/gates/{blocked.public_id}/"))
    assert "This gate could not be decided" in page
    assert "gates.empty" in page
    assert "<script>alert" not in page


def test_names_are_shown_as_text(member, blocked, hostile, text_of):
    from qualityhub.gates.models import Checkpoint

    Checkpoint.objects.filter(pk=blocked.candidate_id).update(name=hostile)
    for path in ("/gates/", f"/gates/{blocked.public_id}/", "/", "/checkpoints/", "/domains/math/"):
        page = text_of(member.get(path))
        assert "<script>alert" not in page, path
        assert "\u202e" not in page, path


def test_more_domains_take_no_more_queries(member, gate_of, queries_of):
    few = queries_of(member, f"/gates/{gate_of({'a': (0.5, 0.5)}).public_id}/")
    many = gate_of({f"d{number}": (0.5, 0.5) for number in range(9)}, tasks=20)
    assert queries_of(member, f"/gates/{many.public_id}/") == few <= 10
    lists = queries_of(member, "/gates/")
    gate_of({"a": (0.5, 0.5)})
    assert queries_of(member, "/gates/") == lists <= 8
