"""Reward determinism."""
