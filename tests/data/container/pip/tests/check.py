import importlib.metadata
import json
from pathlib import Path

answer = Path("/app/sections.txt")
right = answer.is_file() and answer.read_text().split() == ["air", "light", "water"]
installed = importlib.metadata.version("iniconfig") == "2.0.0"
Path("/logs/verifier/reward.json").write_text(json.dumps({"reward": float(right and installed)}))
