"""``python -m bench [--quick] [WORK ...]``: prints the table, writes it as JSON to ``--results``."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bench import report
from bench.report import Line, Verdict
from bench.servers import Scale, Stand
from bench.works.catalogue import WORKS
from boxengine.cli.signals import stop_like_ctrl_c

RESULTS = Path(__file__).parent / "results"
_WIDTH_OF_A_FILE = 180


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the named works, or all if none is named; exit code 1 if one misses its bar."""
    options = _parser().parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_FILE)
    if options.list:
        for name, work in WORKS.items():
            console.print(f"{name:14} {(work.__doc__ or '').splitlines()[0]}", highlight=False)
        return 0
    logging.getLogger("boxengine").setLevel(logging.ERROR)
    began = time.monotonic()
    lines = _run(options.works or list(WORKS), _scale(quick=options.quick, rounds=options.rounds), console)
    console.print(report.table(lines))
    path = report.write(options.results, lines, seconds=time.monotonic() - began, quick=options.quick)
    console.print(f"{time.monotonic() - began:,.0f} s; written to {path}")
    return 1 if any(line.verdict is Verdict.MISSED for line in lines) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("works", nargs="*", metavar="WORK", choices=[*WORKS, []], help="all if none is named")
    parser.add_argument("--quick", action="store_true", help="three rounds and smaller works: under five minutes")
    parser.add_argument("--rounds", type=int, help="5, or 3 with --quick")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help="bench/results if not given")
    parser.add_argument("--list", action="store_true", help="name the works and leave")
    return parser


def _scale(*, quick: bool, rounds: int | None) -> Scale:
    return Scale(quick=quick, rounds=rounds or (3 if quick else 5))


def _run(names: Sequence[str], scale: Scale, console: Console) -> list[Line]:
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(prefix="boxengine-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL runs under another account if the caller is root, and must be able to enter
        stand = Stand(folder, scale)
        with stand.running():
            for work in names:
                began = time.monotonic()
                fresh = WORKS[work](stand)
                lines += fresh
                for line in fresh:
                    console.print(f"[dim]{time.monotonic() - began:5.0f} s[/] {report.sentence(line)}", highlight=False)
    return lines


if __name__ == "__main__":
    stop_like_ctrl_c()  # servers and workers end with this process
    sys.exit(main())
