#!/bin/bash
# The reward is written after the check alone, and its absence is a failure.
if python3 /tests/check_report.py; then echo 1 > /logs/verifier/reward.txt
else echo 0 > /logs/verifier/reward.txt; fi
