"""Folders within folders, deeper than any path can say, where files are read back."""
import os
import tools
depth = 0
os.chdir("/logs")
try:
    while depth < 20_000:
        os.mkdir("d")
        os.chdir("d")
        depth += 1
    open("end", "w").close()
except OSError:
    pass
tools.tell([], depth=depth)
