import collections
import sys

counts = collections.Counter()
for line in open("/app/service.log"):
    _, level, service, _ = line.split()
    if level == "ERROR":
        counts[service.split("=")[1]] += 1
expected = [f"{n} {c}" for n, c in sorted(counts.items(), key=lambda i: (-i[1], i[0]))]
try:
    seen = open("/app/report.txt").read().split("\n")
except OSError as error:
    sys.exit(f"no report: {error}")
seen = [line.strip() for line in seen if line.strip()]
if seen != expected:
    sys.exit(f"expected {expected}, seen {seen}")
