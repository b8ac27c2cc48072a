"""Domains, environments, versions and their tasks."""
