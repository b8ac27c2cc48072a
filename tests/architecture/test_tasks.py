"""Work is enqueued by name: each name that is sent is one a worker knows."""

import ast
from pathlib import Path

from qualityhub.platform.queue import QUEUES

ROOT = Path(__file__).parents[2] / "qualityhub"


def sent_names():
    """Return the task names that product code passes to ``enqueue`` or ``send``."""
    names = set()
    for path in ROOT.rglob("*.py"):
        tree = ast.parse(path.read_text())
        constants = {
            target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"enqueue", "send"}:
                first = node.args[0]
                if isinstance(first, ast.Constant):
                    names.add(first.value)
                elif isinstance(first, ast.Name) and isinstance(constants.get(first.id), str):
                    names.add(constants[first.id])
    return names


def test_every_name_that_is_sent_is_registered(celery_app):
    names = sent_names()
    assert names
    assert names <= set(celery_app.tasks)


def test_every_scheduled_task_is_registered_and_has_a_declared_queue(celery_app):
    from workers.schedule import schedule

    entries = schedule()
    assert entries
    for entry in entries.values():
        assert entry["task"] in celery_app.tasks
        queue = entry.get("options", {}).get("queue")
        assert queue is None or queue in set(QUEUES)
