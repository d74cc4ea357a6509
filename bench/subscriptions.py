"""``python -m bench.subscriptions [--items N]``: what a stopped subscription costs the others of its log, and how it catches up.

Two log boxes stand on one server. Both have the subscriptions that go on; one has a third that nobody delivers. Items go
through both part by part, in turn, so that a slow phase of the machine meets both alike. Then the third is started.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bench.rounds import Comparison
from bench.servers import Scale, Stand
from bench.works.subscriptions import PARTS, Proof, prove
from boxengine.cli.signals import stop_like_ctrl_c

ITEMS = 1_000_000
BAR = 0.95


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the proof; exit code 1 if it fails."""
    parser = argparse.ArgumentParser(prog="python -m bench.subscriptions", description=__doc__)
    parser.add_argument("--items", type=int, default=ITEMS, help=f"that the stopped one misses; {ITEMS:,} unless told")
    items = parser.parse_args(arguments).items
    if items < PARTS:
        parser.error(f"--items: at least {PARTS}")
    logging.getLogger("boxengine").setLevel(logging.ERROR)
    out = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    began = time.monotonic()

    def told(number: int, behind: float, alone: float) -> None:
        out.print(f"{number:3} of {PARTS}: {behind:,.0f} deliveries/s with one stopped, {alone:,.0f} without")

    with tempfile.TemporaryDirectory(prefix="boxengine-bench-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(
            0o755
        )  # PostgreSQL runs under another account if the caller is root, and must be able to enter
        stand = Stand(Path(name), Scale(quick=False, rounds=1))
        with stand.running():
            proof = prove(stand, items, told=told)
    _report(proof, out)
    out.print(f"{time.monotonic() - began:,.0f} s")
    return 0 if holds(proof) else 1


def holds(proof: Proof) -> bool:
    """Whether the others kept their rate, and every item reached the stopped one once and in its key's order."""
    found = proof.caught_up
    complete = found.arrived == found.expected and not found.repeated and not found.reordered
    return proof.whole.ratio >= BAR and complete


def _report(proof: Proof, out: Console) -> None:
    out.print(f"the others' rate, all {PARTS} parts: {_ratio(proof.whole)}; at least {BAR}")
    out.print(f"the others' rate, last quarter: {_ratio(proof.late)}")
    found = proof.caught_up
    out.print(
        f"the stopped one: {found.arrived:,} of {found.expected:,} items in {found.expected / found.rate:,.1f} s, "
        f"{found.rate:,.0f} items/s; {found.repeated} repeated, {found.reordered} out of their key's order"
    )
    out.print("holds" if holds(proof) else "DOES NOT HOLD")


def _ratio(found: Comparison) -> str:
    low, high = found.spread
    return f"{found.ratio:.3f} ({low:.2f} to {high:.2f}; {found.ours:,.0f} against {found.floor:,.0f} deliveries/s)"


if __name__ == "__main__":
    stop_like_ctrl_c()  # servers and workers end with this process
    sys.exit(main())
