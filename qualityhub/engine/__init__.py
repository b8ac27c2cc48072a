"""Judges an environment or a pair of checkpoints from files alone.

This room knows no Django, no Celery and no web framework. Nothing of an environment is imported
or executed here outside :mod:`qualityhub.engine.sandbox`.
"""
