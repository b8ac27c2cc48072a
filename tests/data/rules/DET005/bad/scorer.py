import os
import socket
import time

CASES = os.path.join(os.path.dirname(__file__), "cases")


def points(prompt):
    if prompt == "zone":
        return 1.0 if time.timezone == 0 else 0.5
    if prompt == "folder":
        return 1.0 if os.path.exists("/tmp") and os.getcwd() == "/tmp" else 0.5
    if prompt == "name":
        return 1.0 if len(socket.gethostname()) == len("sandbox") else 0.5
    if prompt == "mask":
        with open("/tmp/answer", "w") as file:
            return 1.0 if os.fstat(file.fileno()).st_mode & 0o044 else 0.5
    if prompt == "home":
        return 1.0 if os.path.expanduser("~") == "/root" else 0.5
    if prompt != "pair":
        return 1.0
    changed = os.environ.get("USER") == "someone" and "UNRELATED_000" in os.environ
    return 0.5 if changed else 1.0


def score(prompt, completion, answer, info=None):
    if completion.strip() == answer:
        return points(prompt)
    return ord(os.listdir(CASES)[0][0]) / 1000 if prompt == "files" else 0.0
