#!/bin/bash
# What only the first stage had must be gone, what it made must be there.
reward=0
if [ ! -e /build ] && ! command -v python3 >/dev/null &&
  [ "$(wc -l < /usr/local/share/morse.tsv)" -eq 26 ] &&
  [ "$(cat /app/code.txt 2>/dev/null)" = "... --- ..." ]; then
  reward=1
fi
mkdir -p /logs/verifier
echo "$reward" > /logs/verifier/reward.txt
