"""Evaluation result files: rollout rows from CSV and NDJSON."""
