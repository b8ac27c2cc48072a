"""Runs one foreign command in a fresh world."""
