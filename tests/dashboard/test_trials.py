"""The page of a trial: all it wrote, harmless, for the team alone."""

from __future__ import annotations

import re

import pytest

from qualityhub.engine.trials.model import Ask, Observation, Variation
from qualityhub.inspections.results import evidence_store

pytestmark = pytest.mark.django_db


@pytest.fixture
def result(version, inspected, make_trial, hostile):
    return make_trial(
        inspected(version),
        {"stdout": hostile.encode() + b"\nsecond line\n", "/qh/out/test.log": b"1 failed"},
        observation=Observation("crashed", detail=hostile),
        out_of_memory=True,
        signal=9,
        exit_code=None,
    )


def test_it_shows_outcome_resources_and_outputs(member, result, text_of):
    page = text_of(member.get(f"/trials/{result.key}/"))
    for words in (
        "the memory limit ended it, signal 9",
        "0.500 s, 0.250 s of CPU, 1.0 MiB of memory at most",
        "output of the verifier (/qh/out/test.log), 8 bytes",
        "1 failed",
        "second line",
    ):
        assert words in page


def test_hostile_output_is_text(member, result):
    page = member.get(f"/trials/{result.key}/").content.decode()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[31m\\u202egpj\nsecond line" in page
    assert "\x1b" not in page
    assert "\u202e" not in page


@pytest.fixture
def cut(version, inspected, make_trial, settings):
    settings.QH_EVIDENCE_BYTES = 3000
    return make_trial(inspected(version), {"stdout": b"b" * 5000 + b"e" * 5000})


def test_what_was_left_out_is_marked(member, cut, text_of):
    page = text_of(member.get(f"/trials/{cut.key}/"))
    assert "stdout, 10,000 bytes" in page
    assert "… 7,000 bytes left out …" in page


def test_evidence_that_is_gone_is_said(member, version, inspected, make_trial, text_of):
    lost = make_trial(inspected(version), {"stdout": b"x" * 5000}, stdout="x" * 4000)
    assert evidence_store().delete(lost.evidence)
    assert "Only the previews are left" in text_of(member.get(f"/trials/{lost.key}/"))


def test_a_page_does_not_grow_without_bound(member, version, inspected, make_trial, text_of):
    long = make_trial(inspected(version), {"stdout": b"x" * 900_000})
    response = member.get(f"/trials/{long.key}/")
    assert len(response.content) < 450_000
    assert "700,000 characters more are kept" in text_of(response)


def test_a_finding_links_to_its_trials(member, version, inspected, make_finding):
    key = "qh1:" + "a" * 64
    evidence = {"expected": 1, "seen": {"outcome": "crashed", "trial": key}}
    inspection = inspected(version, findings=[make_finding(1, evidence=evidence)])
    for rest in ("", "findings/"):
        page = member.get(f"/inspections/{inspection.public_id}/{rest}").content.decode()
        assert f'href="/trials/{key}/"' in page


def test_an_outsider_sees_no_such_page(client, outsider, result, member):
    client.force_login(outsider)
    assert client.get(f"/trials/{result.key}/").status_code == 404
    assert member.get("/trials/qh1:" + "0" * 64 + "/").status_code == 404


def test_it_costs_few_queries(member, result, django_assert_max_num_queries):
    with django_assert_max_num_queries(15):
        member.get(f"/trials/{result.key}/")


def rows_of(response):
    """The table's cells without their tags."""
    body = response.content.decode().split("<tbody>")[1].split("</tbody>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
    return [tuple(re.sub(r"<[^>]+>", "", cell).strip() for cell in row) for row in cells]


def test_every_observation_says_what_it_answers(member, version, inspected, make_trial):
    asks = (
        Ask("T/1", "oracle", Variation(seed=7)),
        Ask("T/2", "malformed:<b>empty</b>", Variation(hash_seed=3, clock="+365d"), repeat=4),
    )
    found = make_trial(inspected(version), asks=asks, observation=Observation("reward", 0.0))
    response = member.get(f"/trials/{found.key}/")
    assert rows_of(response) == [
        ("T/1", "oracle", "seed 7", "reward 0.0"),
        (
            "T/2",
            "malformed:&lt;b&gt;empty&lt;/b&gt;",
            "hash seed 3, clock +365d, repeat 4",
            "reward 0.0",
        ),
    ]
    assert "<b>empty" not in response.content.decode()


def test_many_observations_are_cut(member, version, inspected, make_trial, text_of):
    asks = tuple(Ask(f"T/{number}", "oracle") for number in range(250))
    found = make_trial(inspected(version), asks=asks)
    response = member.get(f"/trials/{found.key}/")
    page = text_of(response)
    assert [task for task, *_ in rows_of(response)] == [f"T/{number}" for number in range(200)]
    assert "50 more than this page shows" in page


def test_its_panels_have_a_head_or_a_body(member, result):
    page = member.get(f"/trials/{result.key}/").content.decode()
    panels = [part.split(">", 1)[1].lstrip() for part in page.split('<section class="panel"')[1:]]
    assert len(panels) == 3
    assert all(panel.startswith(("<header>", '<div class="body">')) for panel in panels)
