from __future__ import annotations

import re

import pytest

from qualityhub.registry.models import Task

pytestmark = pytest.mark.django_db


@pytest.fixture
def path(environment):
    return f"/environments/{environment.public_id}/"


def test_the_verdict_is_explained_in_a_sentence(member, path, version, inspected, text_of):
    inspected(version)
    page = text_of(member.get(path))
    assert "partly admitted" in page
    assert "1 of 2 tasks may be used for training" in page
    assert "reference solution fails (VER001)" in page


def test_findings_show_evidence_fix_and_how_to_see_it_again(
    member, path, version, inspected, text_of
):
    inspected(version)
    page = text_of(member.get(path))
    for part in (
        "reward &gt;= 1",
        "AssertionError: wrong",
        "What was run",
        "<code>canonical_solution</code>",
        "qualityhub reproduce f-000000000001",
        "/rules/VER001/",
        "tasks.jsonl:2",
    ):
        assert part in page, part


def test_the_answer_key_is_labelled_for_the_team(member, path, version, inspected, text_of):
    inspected(version)
    page = text_of(member.get(path))
    assert "return 41" in page[page.index("Answer key, for the team only") :]


def test_what_was_not_measured_stands_beside_the_verdict(member, path, version, inspected, text_of):
    inspected(version)
    page = text_of(member.get(path))
    assert "Not measured" in page
    assert "no sandbox here" in page
    assert "skipped" in page


def test_provisional_results_say_why_and_what_policy_makes_of_it(
    member, path, version, inspected, text_of
):
    inspected(version, "pending", provisional=True, provisional_reason="no container engine")
    page = text_of(member.get(path))
    assert "Provisional: no container engine." in page
    assert "The policy does not admit on provisional results." in page


def test_tasks_are_filtered_by_verdict_and_id(member, path, version, inspected):
    inspected(version)
    shown = member.get(path, {"task_verdict": "quarantined"}).context["task_rows"]
    assert [(task.task_id, verdict, list(codes)) for task, verdict, codes in shown] == [
        ("t2", "quarantined", ["VER001"])
    ]
    shown = member.get(path, {"task": "1"}).context["task_rows"]
    assert [task.task_id for task, _, _ in shown] == ["t1"]


def test_tasks_come_a_hundred_at_a_time(member, path, make_version, inspected, text_of):
    version = make_version(tasks=[f"t{number:03}" for number in range(230)])
    inspected(version, quarantined=())
    page = text_of(member.get(path, {"tasks": "3"}))
    assert "t229" in page
    assert "t199" not in page
    assert "201 to 230 of 230" in page
    assert "tasks=2" in page


@pytest.mark.parametrize("page", ["0", "-1", "x", "9" * 30, "٣"])
def test_page_numbers_that_are_none_give_a_page(member, path, version, inspected, page):
    inspected(version)
    assert member.get(path, {"tasks": page}).status_code == 200


def test_an_earlier_version_is_shown_as_such(member, path, make_version, inspected, text_of):
    old, new = make_version(), make_version()
    inspected(old, "rejected", quarantined=("t1", "t2"))
    inspected(new, "admitted", findings=(), quarantined=())
    page = text_of(member.get(path))
    assert "All 2 tasks passed every rule that was measured" in page
    earlier = text_of(member.get(path, {"version": old.public_id}))
    assert "This is an earlier version" in earlier
    assert "Nothing of it may be used for training" in earlier


def test_another_environments_version_is_not_shown(member, path, team, domain, make_version):
    from qualityhub.registry.models import Environment

    row = Environment.objects.create(team=team, domain=domain, slug="other", name="Other")
    other, mine = make_version(environment=row), make_version()
    shown = member.get(path, {"version": other.public_id}).context["version"]
    assert shown == mine


def test_without_a_version_it_says_how_to_send_one(member, path, text_of):
    page = text_of(member.get(path))
    assert "No version yet" in page
    assert "qualityhub push" in page


def test_contributors_inspect_again_and_watch(editor, path, version, inspected, text_of):
    inspected(version)
    response = editor.post(f"{path}inspect/", {"version": version.public_id})
    assert response.status_code == 302
    page = text_of(editor.get(response["Location"]))
    assert "Inspection under way" in page
    assert '<noscript><meta http-equiv="refresh"' in page
    assert "progress.json" in page
    assert "Inspection under way" in text_of(editor.get(path))


def test_viewers_neither_see_nor_use_the_button(member, path, version, inspected):
    inspected(version)
    assert b"Inspect again" not in member.get(path).content
    response = member.post(f"{path}inspect/", {"version": version.public_id})
    assert response.status_code == 403
    assert b"contributor" in response.content


def test_outsiders_cannot_start_an_inspection(stranger, path, version):
    assert stranger.post(f"{path}inspect/").status_code == 404


def test_foreign_text_stays_text(
    *, member, path, environment, make_version, make_finding, inspected, hostile, text_of
):
    version = make_version(tasks=(f"{hostile}-1", "t2"))
    inspected(
        version,
        findings=[
            make_finding(
                1,
                task=f"{hostile}-1",
                message=hostile,
                title=hostile,
                fix=f"`{hostile}`",
                location=hostile,
                reproduce=f'" onclick="x {hostile}',
                evidence={
                    hostile: hostile,
                    "expected": hostile,
                    "seen": {"outcome": hostile, "detail": f"{hostile}\n{hostile}"},
                    "answer_key": hostile,
                },
            )
        ],
        provisional=True,
        provisional_reason=hostile,
    )
    page = text_of(member.get(path))
    assert "<script>alert" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_more_tasks_and_findings_take_no_more_queries(
    *, member, path, make_version, make_finding, inspected, queries_of
):
    inspected(make_version())
    few = queries_of(member, path)
    tasks = [f"t{number}" for number in range(90)]
    inspected(
        make_version(tasks=tasks),
        findings=[make_finding(number, task=task) for number, task in enumerate(tasks)],
    )
    assert queries_of(member, path) <= few <= 15
    assert Task.objects.count() == 92


def test_many_findings_are_cut_with_a_link_to_all(
    *, member, path, version, make_finding, inspected, text_of
):
    found = [make_finding(number) for number in range(30)]
    inspection = inspected(version, findings=found)
    page = text_of(member.get(path))
    assert "20 more of VER001" in page
    assert f"/inspections/{inspection.public_id}/findings/?code=VER001" in page


def test_every_table_becomes_cards_whose_cells_say_their_column(member, path, version, inspected):
    inspected(version)
    page = member.get(path).content.decode()
    tables = re.findall(r"<table([^>]*)>(.*?)</table>", page, re.DOTALL)
    assert len(tables) >= 4
    for attributes, content in tables:
        assert 'class="cards' in attributes, content[:200]
        columns = re.findall(r"<th scope=\"col\"[^>]*>(.*?)</th>", content)
        for row in re.findall(r"<tr>(.*?)</tr>", content.split("<tbody>")[1], re.DOTALL):
            cells = re.findall(r"<td([^>]*)>", row)
            if not any("colspan" in cell for cell in cells):
                labels = re.findall(r'data-label="([^"]*)"', " ".join(cells))
                assert len(labels) == len(cells), row
                assert set(labels) <= set(columns), row
