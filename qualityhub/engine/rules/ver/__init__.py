"""Test cases and verifier."""
