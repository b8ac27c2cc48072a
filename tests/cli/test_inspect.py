from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest

from qualityhub.engine.errors import InvalidInputError, MachineryError


@pytest.fixture
def unreadable(make_report, make_finding):
    found = make_finding("FMT001", None, message="Two formats fit.", fix="Name one with --adapter.")
    return make_report(found, verdict="rejected", name="bad", tasks=0, adapter="")


def test_a_clean_environment_is_exit_0_with_the_document_alone_on_stdout(call, engine, make_report):
    engine.answers["demo"] = make_report()
    result = call("inspect", "demo", "--format", "json")
    assert result.code == 0
    assert result.json["schema"] == "qualityhub.inspection/1"
    assert result.err == ""


@pytest.mark.parametrize(
    ("verdict", "findings", "code"),
    [
        ("admitted", [], 0),
        ("partial", ["VER001"], 1),
        ("rejected", ["VER001"], 1),
        ("pending", [], 3),
        ("pending", ["VER001"], 1),
        ("error", ["VER001"], 4),
    ],
)
def test_exit_codes_follow_the_report(  # noqa: PLR0917 - fixtures come by name.
    call, engine, make_report, make_finding, verdict, findings, code
):
    engine.answers["demo"] = make_report(
        *(make_finding(name) for name in findings), verdict=verdict
    )
    assert call("inspect", "demo").code == code


@pytest.mark.parametrize(
    "change", [{"severity": "warning"}, {"kind": "lead", "severity": "info"}, {"waived": True}]
)
def test_only_unwaived_findings_of_severity_error_fail(
    call, engine, make_report, make_finding, change
):
    engine.answers["demo"] = make_report(make_finding(**change))
    assert call("inspect", "demo").code == 0


def test_an_unreadable_source_is_exit_2_with_a_report_and_a_hint(call, engine, unreadable):
    engine.answers["bad"] = unreadable
    result = call("inspect", "bad", "--format", "json")
    assert result.code == 2
    assert "error: Two formats fit." in result.err
    assert "hint: Name one with --adapter." in result.err
    assert result.json["verdict"] == "rejected"
    assert result.json["findings"][0]["code"] == "FMT001"


def test_several_sources_are_one_document_and_the_worst_code(
    call, engine, make_report, make_finding, unreadable
):
    engine.answers |= {
        "a": make_report(),
        "b": make_report(make_finding(), verdict="partial"),
        "bad": unreadable,
    }
    result = call("inspect", "a", "b", "--format", "json")
    assert result.code == 1
    assert result.json["schema"] == "qualityhub.inspections/1"
    assert [row["verdict"] for row in result.json["inspections"]] == ["admitted", "partial"]
    assert call("inspect", "a", "b", "bad").code == 2


def test_one_source_that_fails_does_not_hide_the_others(call, engine, make_report):
    engine.answers |= {"a": InvalidInputError("x.y", "There is no file a."), "b": make_report()}
    result = call("inspect", "a", "b", "--format", "json")
    assert result.code == 2
    assert len(result.json["inspections"]) == 1
    engine.answers["a"] = MachineryError("x.y", "The store is full.")
    assert call("inspect", "a", "b").code == 4


def test_a_data_folder_that_cannot_be_used_is_named_and_other_sources_go_on(
    call, engine, make_report
):
    engine.answers |= {"a": OSError(28, "No space left on device", "/data/x"), "b": make_report()}
    result = call("inspect", "a", "b", "--format", "json")
    assert result.code == 4
    assert "No space left on device: '/data/x'" in result.err
    assert "QH_HOME" in result.err
    assert len(result.json["inspections"]) == 1


def test_options_reach_the_engine(call, engine, make_report, tmp_path):
    engine.answers["demo"] = make_report()
    policy = tmp_path / "p.toml"
    policy.write_text('[admission]\nname = "strict"\neffort = "quick"\n')
    call(
        "inspect",
        "demo",
        "--policy",
        policy,
        "--effort",
        "certify",
        "--select",
        "det,VER001",
        "--ignore",
        "VER004",
        "--jobs",
        "3",
        "--sandbox",
        "container",
        "--no-cache",
        "--budget",
        "1h30m",
        "--adapter",
        "humaneval",
        "--domain",
        "code",
    )
    (options,) = engine.options
    assert (options.policy.name, options.policy.effort) == ("strict", "certify")
    assert options.select == ("DET", "VER001")
    assert options.ignore == ("VER004",)
    assert (options.jobs, options.sandbox, options.cache) == (3, "container", False)
    assert options.budget_s == 5400
    assert (options.adapter, options.domain) == ("humaneval", "code")
    assert options.home == tmp_path / "home"


def test_every_option_is_also_an_environment_variable(call, engine, make_report, monkeypatch):
    engine.answers["demo"] = make_report()
    monkeypatch.setenv("QH_INSPECT_EFFORT", "quick")
    monkeypatch.setenv("QH_INSPECT_FORMAT", "json")
    monkeypatch.setenv("QH_INSPECT_SELECT", "DET001 VER001")
    result = call("inspect", "demo")
    assert result.json["verdict"] == "admitted"
    assert engine.options[0].policy.effort == "quick"
    assert engine.options[0].select == ("DET001", "VER001")


@pytest.mark.parametrize(
    "args",
    [
        ("--budget", "soon"),
        ("--budget", "0"),
        ("--select", "nonsense"),
        ("--jobs", "-1"),
        ("--effort", "max"),
        ("--policy", "/none"),
        ("--baseline", "/none"),
        ("--format", "yaml"),
    ],
)
def test_wrong_options_are_usage_before_anything_runs(call, engine, args):
    result = call("inspect", "demo", *args)
    assert result.code == 2
    assert engine.sources == []
    assert result.out == ""


def test_a_policy_with_an_unknown_key_is_named_with_the_nearest_one(call, engine, tmp_path):
    policy = tmp_path / "p.toml"
    policy.write_text('[admission]\neffrt = "quick"\n')
    result = call("inspect", "demo", "--policy", policy)
    assert result.code == 2
    assert "'effort'" in result.err


def test_a_rule_that_does_not_exist_is_named_with_the_nearest_one(call, tmp_path):
    result = call("inspect", tmp_path, "--select", "DET009")
    assert result.code == 2
    assert "DET00" in result.err


def test_what_a_baseline_found_does_not_fail_again(
    call, engine, make_report, make_finding, tmp_path
):
    baseline = tmp_path / "baseline.json"
    engine.answers["demo"] = make_report(make_finding(), verdict="partial")
    assert call("inspect", "demo", "--format", "json", "--output", baseline).code == 1
    result = call("inspect", "demo", "--baseline", baseline)
    assert result.code == 0
    assert "known" in result.out
    known = call("inspect", "demo", "--baseline", baseline, "--format", "json").json["known"]
    assert known == ["fp-VER001-t1"]
    engine.answers["demo"] = make_report(make_finding(), make_finding("VER002"), verdict="partial")
    assert call("inspect", "demo", "--baseline", baseline).code == 1


def test_a_baseline_of_several_environments_keeps_them_apart(
    call, engine, make_report, make_finding, tmp_path
):
    baseline = tmp_path / "baseline.json"
    engine.answers |= {"a": make_report(make_finding(), name="a"), "b": make_report(name="b")}
    call("inspect", "a", "b", "--format", "json", "--output", baseline)
    engine.answers["b"] = make_report(make_finding(), name="b")
    assert call("inspect", "a", "--baseline", baseline).code == 0
    assert call("inspect", "b", "--baseline", baseline).code == 1


def test_a_baseline_of_one_survives_a_new_name(call, engine, make_report, make_finding, tmp_path):
    baseline = tmp_path / "baseline.json"
    engine.answers["a"] = make_report(make_finding(), name="a")
    call("inspect", "a", "--format", "json", "--output", baseline)
    engine.answers["b"] = make_report(make_finding(), name="b")
    assert call("inspect", "b", "--baseline", baseline).code == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"schema": "qualityhub.gate/1"}',
        '{"schema": "qualityhub.inspection/1"}',
        '{"schema": "qualityhub.inspections/1", "inspections": [{"environment": {"name": 1}, "findings": []}]}',
        "[" * 100_000,
    ],
)
def test_a_broken_baseline_is_named(call, engine, tmp_path, text):
    baseline = tmp_path / "b.json"
    baseline.write_text(text)
    result = call("inspect", "demo", "--baseline", baseline)
    assert result.code == 2
    assert str(baseline) in result.err
    assert engine.sources == []


def test_every_format_goes_to_a_file_and_leaves_stdout_empty(
    call, engine, make_report, make_finding, tmp_path
):
    engine.answers["demo"] = make_report(make_finding())
    for form in ("text", "json", "sarif", "junit", "markdown"):
        output = tmp_path / f"report.{form}"
        result = call("inspect", "demo", "--format", form, "--output", output)
        assert (result.code, result.out) == (1, "")
        assert output.stat().st_size > 100
    assert json.loads((tmp_path / "report.sarif").read_text())["version"] == "2.1.0"
    assert ET.parse(tmp_path / "report.junit").getroot().get("failures") == "1"
    assert list(tmp_path.glob(".*")) == []


def test_an_output_that_cannot_be_written_is_named(call, engine, make_report, tmp_path):
    engine.answers["demo"] = make_report()
    result = call("inspect", "demo", "--output", tmp_path / "none" / "x.txt")
    assert result.code == 2
    assert "Cannot write" in result.err


def test_text_goes_uncoloured_into_a_pipe(call, engine, make_report, make_finding, monkeypatch):
    engine.answers["demo"] = make_report(make_finding(message="\x1b[31mred"))
    assert "\x1b" not in call("inspect", "demo").out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[1;31merror" in call("inspect", "demo").out


def test_the_plan_says_what_would_run_and_runs_nothing(call, monkeypatch):
    import qualityhub.engine.inspect as module

    plan = module.Plan(
        {"name": "demo", "adapter": "humaneval", "tasks": 3}, 5, 9, 0, {"VER001": 3, "FMT001": 0}
    )
    monkeypatch.setattr(module, "plan_source", lambda source, options: plan)
    result = call("inspect", "demo", "--plan")
    assert result.code == 0
    assert "9 observations in 5 trials" in result.out
    assert "VER001" in result.out
    document = call("inspect", "demo", "--plan", "--format", "json").json
    assert document["schema"] == "qualityhub.plans/1"
    assert document["plans"][0]["by_rule"] == {"VER001": 3, "FMT001": 0}
    assert call("inspect", "demo", "--plan", "--format", "sarif").code == 2


def test_sarif_points_into_the_repository_from_where_it_is_run(  # noqa: PLR0917 - fixtures.
    call, engine, make_report, make_finding, tmp_path, monkeypatch
):
    demo = tmp_path / "envs" / "demo"
    demo.mkdir(parents=True)
    (demo / "env.py").write_text("")
    monkeypatch.chdir(tmp_path)
    engine.answers["envs/demo"] = make_report(make_finding(location="scorer.py:3"))
    engine.answers["envs/demo/env.py:Env"] = make_report(make_finding())
    engine.answers["gymnasium:X"] = make_report(make_finding())

    def physical(source):
        log = call("inspect", source, "--format", "sarif").json
        return log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]

    assert physical("envs/demo")["artifactLocation"]["uri"] == "envs/demo/scorer.py"
    assert physical("envs/demo")["region"] == {"startLine": 3}
    assert physical("envs/demo/env.py:Env")["artifactLocation"]["uri"] == "envs/demo/env.py"
    assert physical("gymnasium:X")["artifactLocation"]["uri"] == "."
