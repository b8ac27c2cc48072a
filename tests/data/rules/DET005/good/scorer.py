import os
import socket
import tempfile
from datetime import datetime, timezone

CASES = os.path.join(os.path.dirname(__file__), "cases")


def score(prompt, completion, answer, info=None):
    stamp = datetime(2026, 1, 1, tzinfo=timezone.utc).strftime("%H:%M")
    with tempfile.NamedTemporaryFile("w+", prefix=socket.gethostname(), dir=os.getcwd()) as file:
        file.write(completion)
        file.seek(0)
        right = file.read().strip() == answer and stamp == "00:00"
    return 1.0 if right and sorted(os.listdir(CASES))[0] == "a.txt" else 0.0
