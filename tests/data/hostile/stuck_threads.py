"""Busy threads that ignore every signal."""
import signal
import threading
threading.stack_size(256 * 1024)
for number in range(1, 65):
    if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33):
        signal.signal(number, signal.SIG_IGN)

def spin():
    while True:
        pass

for _ in range(16):
    threading.Thread(target=spin, daemon=True).start()
spin()
