"""Celery app, queues, thin tasks, scheduling. Nobody imports this room; work is sent by name."""
