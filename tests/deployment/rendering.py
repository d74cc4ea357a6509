"""Helm's linter and renderer, in a process of their own: ``python rendering.py CHART`` reads values as JSON, one set a line.

Its answer is one JSON value: what the linter found, and of each set of values the text of each template, or why there is none.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import helm_python


def _rendered(chart: Any, values: dict[str, Any]) -> dict[str, str]:
    try:
        chart.validate_schema(values)
        found = chart.render(values, name="boxengine", namespace="shop")
    except helm_python.HelmError as error:
        return {"error": str(error)}
    return {Path(name).name: text for name, text in found.items()}


def main() -> None:
    """Reads standard input, writes standard output."""
    with helm_python.Chart.load(sys.argv[1]) as chart:
        rendered = [_rendered(chart, json.loads(line)) for line in sys.stdin]
    json.dump({"linted": helm_python.lint(sys.argv[1]), "rendered": rendered}, sys.stdout)


if __name__ == "__main__":
    main()
