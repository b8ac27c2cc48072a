"""Writes to what is ours: programs, layers, its own source."""
import os
import tools
reached = []
for folder in ("/qh/programs", "/qh/layer", os.path.dirname(os.path.abspath(__file__)), "/usr/bin"):
    if not os.path.isdir(folder):
        continue
    some = os.path.join(folder, sorted(os.listdir(folder))[0])
    for label, action in {
        "create": lambda: os.close(os.open(folder + "/new", os.O_CREAT | os.O_WRONLY)),
        "open": lambda: os.close(os.open(some, os.O_WRONLY)),
        "truncate": lambda: os.truncate(some, 0),
        "chmod": lambda: os.chmod(some, 0o777),
        "chown": lambda: os.chown(some, 1, 1),
        "unlink": lambda: os.unlink(some),
        "rename": lambda: os.rename(some, some + ".x"),
        "link": lambda: os.link(some, folder + "/linked"),
        "times": lambda: os.utime(some, (0, 0)),
        "attribute": lambda: os.setxattr(some, "user.x", b"x"),
        "unnamed": lambda: os.close(os.open(folder, os.O_TMPFILE | os.O_WRONLY)),
        "rename the folder": lambda: os.rename(folder, "/tmp/moved"),
        "remove the folder": lambda: os.rmdir(folder),
        "through proc": lambda: os.close(os.open("/proc/self/root" + some, os.O_WRONLY)),
        "through one": lambda: os.close(os.open("/proc/1/root" + some, os.O_WRONLY)),
    }.items():
        if tools.can(action):
            reached.append(label + " in " + folder)
tools.tell(reached)
