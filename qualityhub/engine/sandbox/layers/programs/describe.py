"""Print what a distribution file says about itself; runs nothing of it.

Standard library only, Python 3.8 and later. Arguments: the file. Output: a JSON object with the
text of ``PKG-INFO`` and ``pyproject.toml`` (source distribution) or ``METADATA`` (wheel), as far as
they are there.
"""

import json
import os
import sys
import tarfile
import zipfile

LARGEST = 512 * 1024
MOST_ENTRIES = 200000


def wanted(path):
    """Return the name that a path is printed under, or nothing."""
    parts = path.split("/")
    if len(parts) == 2 and parts[1] in ("PKG-INFO", "pyproject.toml"):
        return parts[1]
    if len(parts) == 2 and parts[0].endswith(".dist-info") and parts[1] == "METADATA":
        return parts[1]
    return ""


def of_tar(path):
    """Yield names and texts of a tar archive."""
    with tarfile.open(path) as archive:
        for number, entry in enumerate(archive):
            if number > MOST_ENTRIES:
                return
            if entry.isreg() and wanted(entry.name):
                yield wanted(entry.name), archive.extractfile(entry).read(LARGEST)


def of_zip(path):
    """Yield names and texts of a zip archive."""
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist()[:MOST_ENTRIES]:
            if wanted(entry.filename):
                with archive.open(entry) as file:
                    yield wanted(entry.filename), file.read(LARGEST)


path = sys.argv[1]
found = of_zip(path) if os.path.splitext(path)[1] in (".zip", ".whl") else of_tar(path)
json.dump({name: text.decode("utf-8", "replace") for name, text in found}, sys.stdout)
