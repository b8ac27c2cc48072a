#!/bin/bash
set -eu
cd /app/backups
ls backup-*.tar | sort -r | tail -n +4 | xargs rm --
