"""Renders reports; no verdict is made here."""
