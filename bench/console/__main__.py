"""``python -m bench.console [--rows N] [--tabs N] [--rounds N]``: what the console costs, as a table."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.console.site import Running, running
from bench.console.statements import statements_in
from bench.console.tabs import KINDS, Items, Tabs, Timings
from bench.servers import Scale, Stand
from boxengine.cli.signals import stop_like_ctrl_c

ALONE, SILENT, WATCHED = "without tabs", "with tabs that ask the database nothing", "with tabs"
"""The parts of a round. The second shows what the console's own processor time costs a worker on the same machine. Statements are
measured in a part behind the last round, because their log would be a part of the cost."""
PAGE_SECONDS, STATEMENT_MS, CPU_SHARE, DELIVERY_RATIO = 0.2, 50.0, 0.01, 1.1


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and reports; exit code 1 if a bound was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.console", description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000, help="of the table; a tenth pending, a hundredth failed")
    parser.add_argument("--drain", type=int, default=10_000, help="items that the worker delivers a second, at most")
    parser.add_argument("--tabs", type=int, default=10)
    parser.add_argument(
        "--rounds",
        type=int,
        default=5,
        help="each without tabs, with silent ones, and with real ones; in the end, a part for the statements",
    )
    parser.add_argument("--seconds", type=float, default=90.0, help="of each part, the last for statements")
    options = parser.parse_args(arguments)
    out = Console(width=160)
    with tempfile.TemporaryDirectory(prefix="boxengine-bench-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        stand = Stand(Path(folder), Scale(quick=False, rounds=options.rounds))
        with stand.running(), running(stand, rows=options.rows, per_second=options.drain) as load:
            out.print(f"{options.rows:,} rows, {options.tabs} tabs")
            time.sleep(10)  # lets the worker and its queues reach a steady state
            return _measure(load, options, out)


def _measure(load: Running, options: argparse.Namespace, out: Console) -> int:
    timings, shares, rates, items = Timings(), list[float](), list[float](), Items.of(load)
    spent = list[float]()
    p99: dict[str, list[float]] = {ALONE: [], SILENT: [], WATCHED: []}
    for _ in range(options.rounds):
        for part, measured in p99.items():
            tabs = None if part == ALONE else Tabs(load.port, options.tabs, items, silent=part == SILENT)
            began, delivered = time.time(), load.delivered()
            console, whole = load.console_seconds(), load.database_seconds()
            if tabs:
                tabs.start()
            time.sleep(options.seconds)
            ended = time.time()
            if part == WATCHED:
                seconds = load.console_seconds() - console
                spent.append(seconds / (ended - began))
                shares.append(seconds / max(0.01, load.database_seconds() - whole))
            rates.append((load.delivered() - delivered) / (ended - began))
            measured.append(_share(_latencies(load.latencies, began, ended), 0.99))
            if tabs:
                tabs.stop()
            if tabs and part == WATCHED:
                _merge(timings, tabs.timings)
    return _report(out, timings, _statements(load, items, options), shares, spent, rates, p99)


def _statements(load: Running, items: Items, options: argparse.Namespace) -> dict[str, list[float]]:
    """By text: the milliseconds that each execution took, in a part of their own."""
    with load.logged() as port:
        tabs = Tabs(port, options.tabs, items)
        tabs.start()
        time.sleep(options.seconds)
        tabs.stop()
    return statements_in(load.log) or {"none": [0.0]}


def _report(
    out: Console,
    timings: Timings,
    statements: dict[str, list[float]],
    shares: list[float],
    spent: list[float],
    rates: list[float],
    p99: dict[str, list[float]],
) -> int:
    table = Table("page or action", "times", "median, ms", "p95, ms", "most, ms", title="Answers")
    for kind, seconds in sorted(timings.seconds.items(), key=lambda each: -_share(each[1], 0.95)):
        ordered = (
            len(seconds),
            *(f"{1000 * each:.0f}" for each in (_share(seconds, 0.5), _share(seconds, 0.95), max(seconds))),
        )
        table.add_row(kind, *map(str, ordered))
    out.print(table)
    out.print(_table_of(statements, "The ten slowest statements", max))
    out.print(_table_of(statements, "The ten dearest statements", sum))
    ratios = [watched / alone for alone, watched in zip(p99[ALONE], p99[WATCHED], strict=True)]
    floors = [silent / alone for alone, silent in zip(p99[ALONE], p99[SILENT], strict=True)]
    pages = max(_share(each, 0.95) for each in timings.seconds.values())
    statement = max(map(max, statements.values()))
    spent_on_it, share, ratio = _share(spent, 0.5), _share(shares, 0.5), _share(ratios, 0.5)
    unseen = [kind for kind in KINDS if kind not in timings.seconds]
    verdicts = {
        f"slowest page, p95: {1000 * pages:.0f} ms": pages <= PAGE_SECONDS,
        f"slowest statement: {statement:.1f} ms": statement <= STATEMENT_MS,
        f"the processor time that the database spends on the console: {spent_on_it:.2%} of one processor, "
        f"{share:.2%} of what it spends in all": share <= CPU_SHARE,
        f"delivery's p99 with tabs over without: {ratio:.2f}; with tabs that ask the database nothing: "
        f"{_share(floors, 0.5):.2f}": ratio <= DELIVERY_RATIO,
        f"pages and actions that never came up: {len(unseen)} {unseen[:3]}": not unseen,
        f"answers that were errors: {len(timings.wrong)} {timings.wrong[:3]}": not timings.wrong,
    }
    for part, seconds in p99.items():
        out.print(f"delivery's p99 {part}: {1000 * _share(seconds, 0.5):.0f} ms")
    out.print(f"delivered per second: {_share(rates, 0.5):,.0f}; looks that arrived: {timings.looks:,}")
    for text, kept in verdicts.items():
        out.print(f"{'kept  ' if kept else 'MISSED'} {text}", markup=False)
    return 0 if all(verdicts.values()) else 1


def _table_of(statements: dict[str, list[float]], title: str, rank: Callable[[list[float]], float]) -> Table:
    head = ("statement of the console", "times", "p95, ms", "most, ms", "all, ms")
    table = Table(*head, title=title)
    for text, milliseconds in sorted(statements.items(), key=lambda each: -rank(each[1]))[:10]:
        figures = (_share(milliseconds, 0.95), max(milliseconds), sum(milliseconds))
        table.add_row(text[:100], str(len(milliseconds)), *(f"{figure:.1f}" for figure in figures))
    return table


def _latencies(path: Path, began: float, ended: float) -> list[float]:
    found = (line.split() for line in path.read_text().splitlines() if line.count(" ") == 1)
    return [float(seconds) for at, seconds in found if began <= float(at) <= ended] or [float("nan")]


def _merge(into: Timings, more: Timings) -> None:
    for kind, seconds in more.seconds.items():
        into.seconds[kind] += seconds
    into.wrong += more.wrong
    into.looks += more.looks


def _share(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


if __name__ == "__main__":
    stop_like_ctrl_c()  # servers and workers end with this process
    raise SystemExit(main())
