#!/bin/bash
# Defect: only the newest three are looked for; that the others are gone is never checked.
ok=1
for day in 04 05 06; do
  [ -f /app/backups/backup-2026-02-$day.tar ] || ok=0
done
echo "$ok" > /logs/verifier/reward.txt
