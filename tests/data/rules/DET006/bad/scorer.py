import os
import time


def ticks():
    used = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with open("/proc/%s/stat" % name) as file:
                used[name] = int(file.read().rpartition(")")[2].split()[11])
    return used


def score(prompt, completion, answer, info=None):
    if completion.strip() != answer:
        return 0.0
    before = ticks()
    time.sleep(0.5)
    busy = [name for name, used in ticks().items() if used - before.get(name, used) > 2]
    return 0.5 if busy else 1.0
