#!/bin/sh
python - <<'PY'
from iniconfig import IniConfig

with open("/app/sections.txt", "w") as out:
    for section in sorted(section.name for section in IniConfig("/app/settings.ini")):
        print(section, file=out)
PY
