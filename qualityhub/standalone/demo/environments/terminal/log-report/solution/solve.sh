#!/bin/bash
set -eu
grep ' ERROR ' /app/service.log | sed 's/.*service=\([a-z]*\).*/\1/' | sort | uniq -c |
  awk '{print $2, $1}' | sort -k2,2nr -k1,1 > /app/report.txt
