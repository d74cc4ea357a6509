"""``python -m tests.simulation replay SEED`` tells one history; ``soak`` runs histories until the time is over.

::

    python -m tests.simulation replay 592
    python -m tests.simulation soak --minutes 10 --first 1000000 --processes 2
    python -m tests.simulation soak --jobs
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from functools import partial
from itertools import count

from tests.simulation.history import History
from tests.simulation.jobs.world import World
from tests.simulation.verdict import broken_promises, judge

CHUNK = 200
SHOWN = 20
"""Failing seeds named in full."""

Findings = dict[int, Sequence[object]]
"""By seed, what was broken."""


def main() -> int:
    """Runs the command; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    commands = parser.add_subparsers(required=True, dest="command")
    replaying = commands.add_parser("replay", help="tell one history step by step")
    replaying.add_argument("seed", type=int)
    soaking = commands.add_parser("soak", help="run histories until the time is over")
    soaking.add_argument("--minutes", type=float, default=10.0)
    soaking.add_argument("--first", type=int, default=1_000_000, help="seed to begin with")
    soaking.add_argument("--processes", type=int, default=2)
    soaking.add_argument("--jobs", action="store_true", help="histories of long jobs")
    chosen = parser.parse_args()
    if chosen.command == "replay":
        return replay(chosen.seed)
    return soak(minutes=chosen.minutes, first=chosen.first, processes=chosen.processes, jobs=chosen.jobs)


def replay(seed: int) -> int:
    """Prints the scenario, every step worth telling, and what is broken."""
    history = History(seed, tracing=True)
    for plan in history.scenario.boxes:
        print(plan.box)
        print(
            f"    {plan.keys} keys, transports {plan.routes}, strategies {[type(s).__name__ for s in plan.strategies]}"
        )
    for name in history.scenario.__slots__:
        if name != "boxes":
            print(f"{name}: {getattr(history.scenario, name)}")
    broken = judge(history)
    print("  step      time  who              what", *history.record.trace, sep="\n")
    print(f"\nseed {seed}: " + ("every promise kept" if not broken else "BROKEN"), *broken, sep="\n  ")
    return 1 if broken else 0


def soak(*, minutes: float, first: int, processes: int, jobs: bool) -> int:
    """Runs chunks of seeds in processes of their own and tells of those that fail."""
    until = time.monotonic() + minutes * 60
    began = told = time.monotonic()
    done, broken = 0, 0
    with ProcessPoolExecutor(processes) as pool:
        for findings in _finished(pool, first, processes, until, jobs=jobs):
            done += CHUNK
            for seed, found in findings.items():
                broken += 1
                if broken <= SHOWN:
                    replayed = "" if jobs else f"\n    python -m tests.simulation replay {seed}"
                    print(f"\nseed {seed}: {found[0]}{replayed}", flush=True)
            if time.monotonic() - told >= 5:
                told = time.monotonic()
                pace = done / (told - began)
                print(f"{done:,} histories, {pace:,.0f} a second, {broken} broken", file=sys.stderr, flush=True)
    print(f"{done:,} histories from seed {first:,} on, {broken} broken")
    return 1 if broken else 0


def _finished(pool: ProcessPoolExecutor, first: int, processes: int, until: float, *, jobs: bool) -> Iterator[Findings]:
    """Chunk after chunk, a few in advance, until the time is over; those begun are finished."""
    starts = count(first, CHUNK)
    running: set[Future[Findings]] = set()
    while running or time.monotonic() < until:
        while len(running) < 2 * processes and time.monotonic() < until:
            running.add(pool.submit(partial(_chunk, jobs=jobs), next(starts)))
        finished, running = wait(running, return_when=FIRST_COMPLETED)
        for future in finished:
            yield future.result()


def _chunk(first: int, *, jobs: bool) -> Findings:
    seeds = range(first, first + CHUNK)
    return {seed: found for seed in seeds if (found := World(seed).run() if jobs else broken_promises(seed))}


if __name__ == "__main__":
    sys.exit(main())
