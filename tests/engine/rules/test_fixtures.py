"""Every rule finds its own defect, alone, in its bad fixture, and nothing in its good one."""

from pathlib import Path

import pytest

from qualityhub.engine.inspect import InspectOptions, inspect_source
from qualityhub.engine.policy import AdmissionPolicy
from qualityhub.engine.rules.catalogue import CATALOGUE

FIXTURES = Path(__file__).parents[2] / "data" / "rules"
BAD = {
    "FMT001": {("FMT001", None)},
    "FMT002": {("FMT002", "task")},
    "FMT003": {("FMT003", "Double/0")},
    "FMT004": {("FMT004", None)},
    "VER001": {("VER001", "double/0")},
    "VER002": {("VER002", "double/0")},
    "VER003": {("VER003", "one"), ("VER003", "two")},
    "VER004": {("VER004", "one"), ("VER004", "two")},
    "VER005": {("VER005", "Walk")},
    "DEP001": {("DEP001", None)},
    "DEP002": {("DEP002", None)},
    "DET001": {("DET001", "one"), ("DET001", "two")},
    "DET002": {("DET002", "one"), ("DET002", "two")},
    "DET003": {("DET003", "Walk")},
    "DET004": {("DET004", "one"), ("DET004", "two")},
    "DET005": {
        ("DET005", task) for task in ("zone", "folder", "name", "mask", "files", "home", "pair")
    },
    "DET006": {("DET006", "one"), ("DET006", "two")},
    "DET007": {("DET007", "one"), ("DET007", "two")},
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


def inspect(path, home, code):
    # DEP001 is about words in a file; building the layer it names needs a package index.
    select = ("DEP001", "FMT") if code == "DEP001" else ()
    options = InspectOptions(
        policy=AdmissionPolicy(allow_provisional=True), home=home, select=select
    )
    return inspect_source(str(path), options)


def test_every_rule_has_a_page_and_both_fixtures():
    assert set(BAD) == set(CATALOGUE)
    for code, rule in CATALOGUE.items():
        assert all((rule.page.what, rule.page.why, rule.page.example, rule.page.fix)), code
        for kind in ("bad", "good"):
            assert any((FIXTURES / code / kind).iterdir()), f"{code}/{kind}"


@pytest.mark.parametrize("code", sorted(BAD))
def test_the_bad_fixture_shows_its_defect_and_no_other(code, home):
    report = inspect(FIXTURES / code / "bad", home, code)
    assert {(finding.code, finding.task) for finding in report.findings} == BAD[code]
    errors = [finding for finding in report.findings if finding.severity == "error"]
    assert (report.verdict in {"rejected", "partial"}) == bool(errors)
    assert all(finding.reproduce.startswith("qualityhub ") for finding in report.findings)


@pytest.mark.parametrize("code", sorted(BAD))
def test_the_good_fixture_shows_nothing(code, home):
    report = inspect(FIXTURES / code / "good", home, code)
    assert report.findings == ()
    assert report.verdict in ({"admitted", "pending"} if code == "DEP001" else {"admitted"})
