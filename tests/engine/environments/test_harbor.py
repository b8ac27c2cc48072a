from __future__ import annotations

import pytest

from qualityhub.engine.environments.formats.dockerfile import image_requirements
from qualityhub.engine.environments.formats.harbor_schema import mebibytes
from qualityhub.engine.environments.reader import read_environment
from qualityhub.engine.errors import InvalidInputError

MINIMAL = {
    "task.toml": "",
    "instruction.md": "Do it.\n",
    "environment/Dockerfile": "FROM debian:12\n",
    "tests/test.sh": "#!/bin/sh\n",
    "solution/solve.sh": "#!/bin/sh\n",
}


def refused(source):
    with pytest.raises(InvalidInputError) as caught:
        read_environment(str(source))
    return caught.value


def test_one_task_folder_is_an_environment_of_one_task(sample):
    environment = read_environment(str(sample("harbor-one")))
    assert (environment.adapter, environment.family, environment.name) == (
        "harbor",
        "task",
        "harbor-one",
    )
    (task,) = environment.tasks
    assert task.id == "samples/greeting"
    assert set(task.layers) == {"statement", "environment", "verifier", "solution", "documentation"}
    assert task.data == {
        "path": ".",
        "instruction": "Write hello into /app/out.txt.\n",
        "context": "environment",
        "dockerfile": "environment/Dockerfile",
        "docker_image": "",
        "compose": False,
        "verifier_timeout_s": 60.0,
        "agent_timeout_s": 120.0,
        "verifier_env": {"EXPECTED": "hello"},
        "solution_env": {"WORD": "hello"},
        "environment_env": {},
        "workdir": "/app",
        "memory_mb": 2048,
        "cpus": 1,
        "gpus": 0,
        "os": "linux",
        "allow_internet": False,
        "separate_verifier": False,
        "tests": "tests",
        "solution": "solution",
        "steps": False,
        "image_requirements": ["pytest==8.4.1", "numpy>=2", "rich==14.0.0", "click"],
    }


def test_a_folder_of_tasks_names_them_by_folder(sample):
    environment = read_environment(str(sample("harbor-set")))
    assert [task.id for task in environment.tasks] == ["first", "second"]
    assert environment.tasks[1].data["tests"] == "second/tests"
    assert environment.tasks[1].data["dockerfile"] == "second/environment/Dockerfile"


def test_an_unknown_key_is_a_problem_of_its_task_with_the_nearest_key(sample):
    (problem,) = read_environment(str(sample("harbor-set"))).problems
    assert (problem.code, problem.task, problem.location) == (
        "FMT002",
        "second",
        "second/task.toml",
    )
    assert "'timeout_secs'" in problem.message
    assert "'timeout_sec'" in problem.message
    assert problem.ground == "unknown key verifier.timeout_secs"


def test_everything_has_a_default_but_the_parts_themselves(package):
    environment = read_environment(str(package(MINIMAL)))
    (task,) = environment.tasks
    assert task.id == "task"
    assert (task.data["verifier_timeout_s"], task.data["agent_timeout_s"]) == (600.0, 600.0)
    assert (task.data["memory_mb"], task.data["cpus"], task.data["allow_internet"]) == (
        None,
        None,
        True,
    )
    assert environment.problems == ()


@pytest.mark.parametrize(
    ("part", "ground"),
    [
        ("instruction.md", "no instruction"),
        ("tests/test.sh", "no tests"),
        ("environment/Dockerfile", "no image"),
    ],
)
def test_a_missing_part_is_a_problem_of_its_task(package, part, ground):
    files = {f"good/{path}": text for path, text in MINIMAL.items()}
    files |= {f"bad/{path}": text for path, text in MINIMAL.items() if path != part}
    (problem,) = read_environment(str(package(files))).problems
    assert (problem.code, problem.task, problem.ground) == ("FMT001", "bad", ground)
    assert problem.location == f"bad/{part}"


def test_a_solution_folder_without_its_script_is_a_problem(package):
    files = {**MINIMAL, "solution/notes.txt": "x"}
    del files["solution/solve.sh"]
    (problem,) = read_environment(str(package(files))).problems
    assert problem.ground == "no solution script"


def test_a_task_without_solution_has_no_solution_layer(package):
    files = {path: text for path, text in MINIMAL.items() if not path.startswith("solution")}
    environment = read_environment(str(package(files)))
    assert environment.problems == ()
    assert environment.tasks[0].data["solution"] == ""
    assert "solution" not in environment.tasks[0].layers


def test_an_image_by_name_or_a_compose_file_replaces_the_dockerfile(package):
    files = {path: text for path, text in MINIMAL.items() if "Dockerfile" not in path}
    named = package({**files, "task.toml": '[environment]\ndocker_image = "debian:12"\n'}, "named")
    assert read_environment(str(named)).tasks[0].data["docker_image"] == "debian:12"
    composed = package({**files, "environment/docker-compose.yaml": "services: {}\n"}, "composed")
    task = read_environment(str(composed)).tasks[0]
    assert (task.data["compose"], task.data["dockerfile"]) == (True, "")


def test_an_archive_of_the_image_is_part_of_the_environment_layer(package):
    files = {path: text for path, text in MINIMAL.items() if "Dockerfile" not in path}
    files["task.toml"] = '[environment]\ndocker_image = "image.tar"\n'
    first = read_environment(str(package({**files, "image.tar": "one"}, "first"))).tasks[0]
    second = read_environment(str(package({**files, "image.tar": "two"}, "second"))).tasks[0]
    changed = {name for name in first.layers if first.layers[name] != second.layers[name]}
    assert changed == {"environment"}
    beside = read_environment(str(package({**files, "notes.tar": "x"}, "beside"))).tasks[0]
    other = read_environment(str(package({**files, "notes.tar": "y"}, "other"))).tasks[0]
    changed = {name for name in beside.layers if beside.layers[name] != other.layers[name]}
    assert changed == {"documentation"}


def test_a_task_of_steps_says_so(package):
    files = {
        "task.toml": '[[steps]]\nname = "one"\nmin_reward = 0.5\n',
        "environment/Dockerfile": "FROM debian:12\n",
        "steps/one/instruction.md": "x",
        "steps/one/tests/test.sh": "x",
    }
    environment = read_environment(str(package(files)))
    assert environment.tasks[0].data["steps"]
    assert environment.problems == ()


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ("[verifier]\ntimeout_sec = '60'", "verifier.timeout_sec"),
        ("[verifier]\ntimeout_sec = true", "verifier.timeout_sec"),
        ("[verifier]\ntimeout_sec = 0", "verifier.timeout_sec"),
        ("[verifier]\ntimeout_sec = inf", "verifier.timeout_sec"),
        ("[agent]\ntimeout_sec = nan", "agent.timeout_sec"),
        ("[environment]\ncpus = 'two'", "environment.cpus"),
        ("[environment]\nmemory_mb = -1", "environment.memory_mb"),
        (f"[environment]\nmemory_mb = {'9' * 400}", "environment.memory_mb"),
        ("[environment]\nmemory = 'much'", "environment.memory"),
        ("[environment]\nenv = { A = 1 }", "environment.env"),
        ("[environment]\nnetwork_mode = 'open'", "environment.network_mode"),
        ("[[environment.mcp_servers]]\ntransport = 'x'", "environment.mcp_servers.transport"),
        ("environment = 5", "environment"),
        ("steps = 5", "steps"),
        ("steps = [5]", "steps"),
        ("[task]\nauthors = ['me']", "task.authors"),
        ("[task]\nname = 'a\\u0007b'", "id"),
        ("artifacts = [5]", "artifacts"),
    ],
)
def test_a_value_of_a_wrong_type_is_refused_by_its_key(package, config, key):
    error = refused(package({**MINIMAL, "task.toml": config.replace("'", '"')}))
    assert error.code == "package.wrong_type"
    assert "task.toml" in error.message
    assert key in error.message


def test_a_config_that_is_no_toml_is_refused(package):
    assert refused(package({**MINIMAL, "task.toml": "[task"})).code == "package.bad_toml"


def test_two_tasks_may_share_a_declared_name_in_a_folder(sample):
    assert len(read_environment(str(sample("harbor-set"))).tasks) == 2


def test_a_task_file_stands_for_its_folder(sample):
    root = sample("harbor-one")
    assert read_environment(str(root / "task.toml")).digest == read_environment(str(root)).digest


@pytest.mark.parametrize(
    ("size", "expected"),
    [("2G", 2048), ("512M", 512), ("1.5g", 1536), ("2048K", 2), ("1GiB", 1024), ("1048576", 1)],
)
def test_sizes_are_mebibytes(size, expected):
    assert mebibytes(size) == expected


def test_requirements_of_an_image_come_from_every_way_to_install():
    dockerfile = """
# syntax=docker/dockerfile:1
FROM python:3.12
COPY deps/requirements.txt /tmp/r.txt
COPY --chown=1:1 deps/extra.txt /opt/
RUN apt-get install -y curl && pip3 install 'a==1 ; python_version > "3"' b==2; \\
    python -m pip install --no-cache-dir -i https://index.example c
RUN uv pip install --system d==4 && pip install -r /opt/extra.txt . ./local $VERSION e.whl
RUN echo pip install nothing-quoted | cat
CMD ["pip", "install", "z"]
"""
    files = {"deps/extra.txt": "f==6\n# no\n-r other.txt\ng==7 --hash=sha256:00\n"}
    found = image_requirements(dockerfile, files.get)
    assert found[:6] == ('a==1 ; python_version > "3"', "b==2", "c", "d==4", "f==6", "g==7")
    assert "z" not in found


def test_a_dockerfile_with_an_open_quote_is_still_read():
    assert image_requirements("RUN pip install a==1 && echo 'open", lambda _: None)[:1] == ("a==1",)
