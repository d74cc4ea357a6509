"""mypy and pyright, both strict, as a user of the package would run them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
FASTAPI = ROOT / "examples" / "fastapi"
"""Its migrations import the application from there."""
DJANGO = ROOT / "examples" / "django"
"""Its applications are imported from there."""
_LINE = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: (?P<message>.*)$")

Findings = dict[tuple[str, int], str]
"""By file name and line, the first message about it."""


def mypy(folder: Path, files: Sequence[Path]) -> Findings:
    """What mypy says, in strict mode and with no plugin."""
    settings = folder / "mypy.ini"
    settings.write_text("[mypy]\nstrict = true\nfollow_imports = silent\n")
    options = ["--config-file", str(settings), "--cache-dir", str(folder / "cache"), "--no-error-summary"]
    done = _run([sys.executable, "-m", "mypy", *options, *map(str, files)])
    assert not done.stderr, done.stderr
    found: Findings = {}
    for line in done.stdout.splitlines():
        match = _LINE.match(line)
        if match:
            found.setdefault((Path(match["file"]).name, int(match["line"])), match["message"])
        else:
            assert ": note: " in line, line
    return found


def pyright(folder: Path, files: Sequence[Path], *, roots: Sequence[Path] = (ROOT, FASTAPI, DJANGO)) -> Findings:
    """What pyright says, in strict mode."""
    settings = folder / "pyrightconfig.json"
    environment = {
        "typeCheckingMode": "strict",
        "include": [str(file) for file in files],
        "extraPaths": [str(root) for root in roots],
        "venvPath": str(Path(sys.prefix).parent),
        "venv": Path(sys.prefix).name,
    }
    settings.write_text(json.dumps(environment))
    done = _run([sys.executable, "-m", "basedpyright", "--outputjson", "-p", str(settings)])
    told = json.loads(done.stdout)
    assert told["summary"]["filesAnalyzed"] >= len(files), done.stdout
    found: Findings = {}
    for each in told["generalDiagnostics"]:
        if each["severity"] == "error":
            place = Path(each["file"]).name, each["range"]["start"]["line"] + 1
            found.setdefault(place, each["message"])
    return found


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)
