"""Inspections: work for the workers, findings, admission, waivers, audits."""
