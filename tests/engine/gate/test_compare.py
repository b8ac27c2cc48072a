from __future__ import annotations

import gzip
import json

import pytest

from qualityhub.engine.errors import InvalidInputError
from qualityhub.engine.gate.compare import compare_files
from qualityhub.engine.gate.policy import GatePolicy, gate_policy_from


def ndjson(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows(tasks=200, attempts=4, fails=0, **kwargs):
    return [
        {"task": f"t{t}", "attempt": a, "passed": t >= fails, "task_digest": f"qh1:{t}"} | kwargs
        for t in range(tasks)
        for a in range(attempts)
    ]


def csv(path, rows):
    columns = list(rows[0])
    lines = [",".join(columns), *(",".join(str(row[c]).lower() for c in columns) for row in rows)]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    return path


def test_csv_and_ndjson_files_are_compared_across_formats(tmp_path):
    base = ndjson(tmp_path / "base.ndjson", rows(domain="code"))
    cand = csv(tmp_path / "cand.csv.gz", rows(domain="code", fails=30))
    decision = compare_files([cand], [base], GatePolicy())
    assert decision.verdict == "block"
    assert decision.domains[0].domain == "code"
    assert decision.domains[0].numbers.delta == pytest.approx(-0.15)
    assert decision.inputs["candidate"]["rollouts"] == 800


def test_several_files_are_one_run_whose_repeats_count_once(tmp_path):
    whole = rows()
    base = ndjson(tmp_path / "base.ndjson", whole)
    first = ndjson(tmp_path / "first.ndjson", whole[:500])
    second = ndjson(tmp_path / "second.ndjson", [*whole[400:], {**whole[0], "passed": False}])
    decision = compare_files([first, second], [base], GatePolicy())
    assert decision.verdict == "promote"
    assert decision.domains[0].n_rollouts == {"candidate": 800, "baseline": 800}
    assert "100 rows of the candidate were given twice and count once." in decision.notes
    assert any(
        "1 rows of the candidate contradict" in note and "default/t0#0" in note
        for note in decision.notes
    )


def test_rows_without_a_domain_say_where_they_went(tmp_path):
    base = ndjson(tmp_path / "base.ndjson", rows())
    decision = compare_files([base], [base], GatePolicy())
    assert decision.domains[0].domain == "default"
    assert "800 rows of the baseline name no domain and count as 'default'." in decision.notes


def test_the_cluster_attribute_of_the_policy_is_read_from_the_rows(tmp_path):
    clustered = [
        {**row, "attributes": {"repository": f"r{int(row['task'][1:]) % 25}"}} for row in rows()
    ]
    base = ndjson(tmp_path / "base.ndjson", clustered)
    decision = compare_files([base], [base], gate_policy_from({"cluster_attribute": "repository"}))
    assert decision.domains[0].n_clusters == 25


def test_a_broken_file_ends_the_comparison_with_its_place(tmp_path):
    base = ndjson(tmp_path / "base.ndjson", rows())
    broken = tmp_path / "broken.ndjson"
    broken.write_bytes(base.read_bytes()[:-20])
    with pytest.raises(InvalidInputError) as caught:
        compare_files([broken], [base], GatePolicy())
    assert caught.value.code == "results.truncated"
    assert caught.value.message.startswith("broken.ndjson:800: ")
