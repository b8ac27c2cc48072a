#!/bin/sh
mkdir -p /logs/verifier
python /tests/check.py
