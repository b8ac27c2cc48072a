"""What a change of a file changes, and what it leaves alone."""

from __future__ import annotations

import json

import pytest

from qualityhub.engine.environments.reader import read_environment


def differing(before, after):
    """Return ids of tasks whose digest differs, and layers that differ in any task."""
    one, two = ({task.id: task for task in env.tasks} for env in (before, after))
    tasks = {key for key in one.keys() | two.keys() if one[key].digest != two[key].digest}
    layers = {
        layer
        for key in one
        for layer in one[key].layers.keys() | two[key].layers.keys()
        if one[key].layers.get(layer) != two[key].layers.get(layer)
    }
    return tasks, layers


def change_row(file, index, values):
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows[index].update(values)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


ROW_CHANGES = [
    ("humaneval/rows.jsonl", 1, {"test": "def check(candidate):\n    pass\n"}, "mini/1", {"verifier"}),
    ("humaneval/rows.jsonl", 0, {"prompt": "def double(x):\n"}, "mini/0", {"statement"}),
    ("humaneval/rows.jsonl", 0, {"canonical_solution": "    return x + x\n"}, "mini/0", {"solution"}),
    ("scorer/dataset.jsonl", 1, {"prompt": "2 + 2 ="}, "row-0002", {"statement"}),
    ("scorer/dataset.jsonl", 0, {"answer": "two"}, "add-1", {"verifier", "solution"}),
    ("scorer/dataset.jsonl", 1, {"info": {"steps": 2}}, "row-0002", {"verifier"}),
    ("scorer/dataset.jsonl", 2, {"correct": "5"}, "row-0003", {"solution"}),
]  # fmt: skip


@pytest.mark.parametrize("change", ROW_CHANGES, ids=lambda change: f"{change[3]}-{list(change[2])}")
def test_a_changed_row_changes_its_task_and_the_environment_alone(sample, change):
    path, index, values, task, layers = change
    name, file = path.split("/")
    root = sample(name)
    before = read_environment(str(root))
    change_row(root / file, index, values)
    after = read_environment(str(root))
    assert differing(before, after) == ({task}, layers)
    assert after.digest != before.digest
    assert after.shared == before.shared


def test_the_order_and_layout_of_rows_change_nothing_where_they_carry_ids(sample):
    root = sample("humaneval")
    before = read_environment(str(root))
    file = root / "rows.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("\n\n".join(json.dumps(dict(reversed(row.items()))) for row in rows[::-1]))
    assert read_environment(str(root)).digest == before.digest


@pytest.mark.parametrize("name", ["scorer", "harbor-one"])
def test_a_readme_changes_documentation_alone(sample, name):
    root = sample(name)
    before = read_environment(str(root))
    (root / "README.md").write_text("# Other words\n")
    after = read_environment(str(root))
    assert differing(before, after) == (set(), {"documentation"})
    assert after.digest == before.digest


def test_a_readme_that_the_scorer_reads_is_no_documentation(sample):
    root = sample("scorer")
    scorer = root / "scorer.py"
    scorer.write_text(scorer.read_text() + '\nRULES = open("README.md").read()\n')
    before = read_environment(str(root))
    (root / "README.md").write_text("# Other words\n")
    assert read_environment(str(root)).digest != before.digest
    assert "README.md" in before.shared_files


def test_rows_that_the_scorer_reads_are_shared_by_all_tasks(sample):
    root = sample("scorer")
    scorer = root / "scorer.py"
    scorer.write_text(scorer.read_text() + '\nROWS = open("dataset.jsonl").read()\n')
    before = read_environment(str(root))
    change_row(root / "dataset.jsonl", 1, {"prompt": "2 + 2 ="})
    after = read_environment(str(root))
    assert len(differing(before, after)[0]) == len(before.tasks)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('reason = "the second printing of the book fixes it"', 'reason = "other words"'),
        ('ignore = ["DEP001"]', 'select = ["VER"]'),
        ('name = "arithmetic"', 'name = "sums"'),
        ('domain = "math"', 'domain = "numbers"'),
    ],
)
def test_requests_and_labels_of_the_manifest_change_no_digest(sample, old, new):
    root = sample("scorer")
    before = read_environment(str(root))
    manifest = root / "qualityhub.toml"
    assert old in manifest.read_text()
    manifest.write_text(manifest.read_text().replace(old, new))
    after = read_environment(str(root))
    assert differing(before, after) == (set(), set())
    assert after.digest == before.digest
    assert (after.requests, after.name, after.domain) != (
        before.requests,
        before.name,
        before.domain,
    )


@pytest.mark.parametrize(
    "addition", ['python = ">=3.12"', 'dependencies = ["sympy==1.14.0"]', "seedable = false"]
)
def test_what_the_manifest_states_is_part_of_the_environment_layer(sample, addition):
    root = sample("scorer")
    before = read_environment(str(root))
    manifest = root / "qualityhub.toml"
    manifest.write_text(manifest.read_text().replace("[environment]", f"[environment]\n{addition}"))
    after = read_environment(str(root))
    assert differing(before, after) == ({task.id for task in before.tasks}, {"environment"})


def test_byte_code_repository_data_and_caches_belong_to_no_tree(sample):
    root = sample("scorer")
    before = read_environment(str(root))
    for folder in ("__pycache__", ".git", ".qualityhub", "inner/__pycache__"):
        (root / folder).mkdir(parents=True)
        (root / folder / "scorer.cpython-311.pyc").write_bytes(b"\0")
    after = read_environment(str(root))
    assert after.digest == before.digest
    assert after.files == before.files


@pytest.mark.parametrize(
    ("path", "layer"),
    [
        ("instruction.md", {"statement"}),
        ("environment/requirements.txt", {"environment"}),
        ("tests/test.sh", {"verifier"}),
        ("solution/solve.sh", {"solution"}),
    ],
)
def test_each_part_of_a_task_folder_has_its_layer(sample, path, layer):
    root = sample("harbor-set")
    before = read_environment(str(root))
    place = root / "second" / path
    place.write_text(place.read_text() + "# more\n")
    assert differing(before, read_environment(str(root))) == ({"second"}, layer)


@pytest.mark.parametrize(
    ("old", "new", "layer"),
    [
        ("cpus = 1", "cpus = 2", {"environment"}),
        ('EXPECTED = "hello"', 'EXPECTED = "bye"', {"verifier"}),
        ('WORD = "hello"', 'WORD = "bye"', {"solution"}),
        ('difficulty = "easy"', 'difficulty = "hard"', {"documentation"}),
    ],
)
def test_each_table_of_a_task_has_its_layer(sample, old, new, layer):
    root = sample("harbor-one")
    before = read_environment(str(root))
    config = root / "task.toml"
    assert old in config.read_text()
    config.write_text(config.read_text().replace(old, new))
    assert differing(before, read_environment(str(root)))[1] == layer


def test_an_execute_bit_counts_and_a_read_bit_does_not(sample):
    root = sample("harbor-one")
    before = read_environment(str(root))
    (root / "tests/test.sh").chmod(0o555)
    assert read_environment(str(root)).digest == before.digest
    (root / "tests/test.sh").chmod(0o644)
    assert read_environment(str(root)).digest != before.digest


def test_a_copy_under_another_name_has_the_same_digest(sample, tmp_path):
    for name in ("humaneval", "scorer", "harbor-one", "harbor-set"):
        root = sample(name)
        before = read_environment(str(root))
        other = root.rename(tmp_path / f"moved-{name}")
        assert read_environment(str(other)).digest == before.digest


def test_a_file_and_its_folder_are_the_same_environment(sample):
    root = sample("humaneval")
    (root / "requirements.txt").write_text("numpy==2.2.1\n")
    as_file = read_environment(str(root / "rows.jsonl"))
    as_folder = read_environment(str(root))
    assert as_file.digest == as_folder.digest
    assert [entry.path for entry in as_file.files] == ["rows.jsonl", "requirements.txt"]
