"""What an environment asks of the host that prepares and runs it."""

from __future__ import annotations

import pytest

from qualityhub.engine.environments.model import Environment, Task
from qualityhub.engine.environments.placement import gpus_of, placement_of, task_size
from qualityhub.engine.environments.reader import read_environment
from qualityhub.engine.errors import UnreadablePackageError

ROW = (
    '{"task_id": "T/1", "prompt": "def f():\\n", "entry_point": "f", '
    '"canonical_solution": "    return 1\\n", "test": "def check(f):\\n    assert f() == 1\\n", '
    '"memory_mb": 999999}\n'
)


@pytest.fixture
def package(tmp_path):
    def make(manifest):
        (tmp_path / "tasks.jsonl").write_text(ROW)
        (tmp_path / "qualityhub.toml").write_text(manifest)
        return read_environment(str(tmp_path))

    return make


def task_environment(**data):
    task = Task("t", {}, "qh1:t", data)
    return Environment("e", "harbor", "task", "qh1:e", (task,)), task


def test_declared_labels_devices_and_python_are_asked_for(package):
    asked = placement_of(
        package(
            '[environment]\npython = ">=3.12"\ndevices = ["cuda:0", "cuda:1", "tpu"]\n'
            'labels = { zone = "a" }\n'
        )
    )
    assert asked == {"python": ">=3.12", "gpus": 2, "labels": {"zone": "a"}}


def test_labels_do_not_change_what_is_judged(package):
    plain = package('[environment]\nname = "x"\n')
    assert package('[environment]\nname = "x"\nlabels = { zone = "a" }\n').digest == plain.digest
    assert package('[environment]\nname = "x"\ndevices = ["cuda"]\n').digest != plain.digest


@pytest.mark.parametrize("label", ['zone = "a b"', 'zone = ""', '"" = "a"', '"a/b" = "c"'])
def test_labels_are_short_words(package, label):
    with pytest.raises(UnreadablePackageError, match="labels"):
        package(f"[environment]\nlabels = {{ {label} }}\n")


def test_rows_of_other_families_ask_for_nothing(package):
    environment = package('[environment]\nname = "x"\n')
    assert placement_of(environment) == {}
    assert task_size(environment, environment.tasks[0]) == {"memory_mib": 0, "cpus": 0, "gpus": 0}


@pytest.mark.parametrize(
    ("value", "counted"),
    [(2048, 2048), (2.5, 2), (None, 0), ("2048", 0), (True, 0), (-1, 0), (1e400, 2**31 - 1)],
)
def test_size_of_a_task_is_a_sane_number(value, counted):
    environment, task = task_environment(memory_mb=value, dockerfile="environment/Dockerfile")
    assert task_size(environment, task)["memory_mib"] == counted
    assert placement_of(environment) == {"image": True}


def test_devices_of_other_kinds_are_no_gpus():
    environment, _ = task_environment()
    assert gpus_of(environment) == 0
