from __future__ import annotations

import pytest

from qualityhub.cli import references
from qualityhub.engine.rules.catalogue import CATALOGUE
from qualityhub.engine.rules.pages import rule_page

HEADINGS = [
    "## What it does",
    "## Why it matters",
    "## Example",
    "## Fix",
    "## Severity, cost, applies to",
]


@pytest.mark.parametrize("code", CATALOGUE)
def test_every_page_has_the_fixed_headings_with_text_below_each(code):
    page = rule_page(CATALOGUE[code])
    assert page.startswith(f"# {code}: ")
    places = [page.index(f"\n{heading}\n\n") for heading in HEADINGS]
    assert places == sorted(places)
    for heading, following in zip(HEADINGS, [*HEADINGS[1:], ""], strict=True):
        between = page.partition(heading)[2]
        text = between.partition(following)[0] if following else between
        assert len(text.strip()) > 10


def test_the_list_names_every_rule_in_every_format(call):
    for form in ("text", "markdown"):
        listed = call("rules", "--format", form)
        assert listed.code == 0
        assert all(
            code in listed.out and rule.title in listed.out for code, rule in CATALOGUE.items()
        )
    document = call("rules", "--format", "json").json
    assert document["schema"] == "qualityhub.rules/1"
    assert [rule["code"] for rule in document["rules"]] == list(CATALOGUE)


def test_a_page_is_found_in_any_case(call):
    code = next(iter(CATALOGUE))
    assert call("rules", code.lower(), "--format", "markdown").out == rule_page(CATALOGUE[code])
    assert "## " not in call("rules", code).out
    assert call("rules", code, "--format", "json").json["fix"] == CATALOGUE[code].page.fix


def test_an_unknown_code_is_exit_2_with_the_nearest_one(call):
    result = call("rules", "DET01")
    assert result.code == 2
    assert "DET001" in result.err
    assert result.out == ""


def test_reference_pages_are_written_checked_and_cleared_of_old_ones(tmp_path, monkeypatch, capsys):
    pytest.importorskip("qualityhub.cli.up")
    monkeypatch.chdir(tmp_path)
    assert references.main(["--check"]) == 1
    assert references.main([]) == 0
    assert references.main(["--check"]) == 0
    pages = {path.name for path in (tmp_path / "docs/reference/rules").iterdir()}
    assert pages == {f"{code}.md" for code in CATALOGUE} | {"index.md"}
    old = tmp_path / "docs/reference/rules/OLD001.md"
    old.write_text("x")
    (tmp_path / "docs/reference/cli.md").write_text("edited")
    capsys.readouterr()
    assert references.main(["--check"]) == 1
    said = capsys.readouterr().err
    assert "OLD001" in said
    assert "cli.md" in said
    assert references.main([]) == 0
    assert not old.exists()
    assert references.main(["--check"]) == 0
    assert references.main(["--wrong"]) == 2


def test_the_command_line_reference_names_every_option_with_its_variable():
    pytest.importorskip("qualityhub.cli.up")
    page = references.cli_page()
    for text in (
        "### qualityhub inspect",
        "### qualityhub admission check",
        "`QH_INSPECT_CHANGED_SINCE`",
        "`QH_URL`",
        "130 interrupted",
    ):
        assert text in page
