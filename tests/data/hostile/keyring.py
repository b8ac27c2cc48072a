"""The key rings of whoever started it."""
import sys
import tools
reached = []
for ring in (-1, -2, -3, -4, -5):
    if tools.call("add_key", b"user", sys.argv[1].encode(), b"x", 1, ring) >= 0:
        reached.append("add_key %d" % ring)
    if tools.call("keyctl", 0, ring, 1, 0, 0) >= 0:
        reached.append("keyctl %d" % ring)
if tools.call("keyctl", 22, 0, -3, 0, 0) >= 0:
    reached.append("persistent ring")
if tools.call("request_key", b"user", b"x", 0, -3) >= 0:
    reached.append("request_key")
tools.tell(reached)
