"""Runs the demonstration, from its first line to its verdict."""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from boxengine.demo.shop import INBOX, OUTBOX, Shop
from boxengine.demo.stage import Stage
from boxengine.demo.verdict import Check, judge
from boxengine.domain.item import Status
from boxengine.errors import BoxError

LOOK_EVERY = 0.25
"""Seconds between two looks at the tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """How the demonstration runs."""

    items: int = 20_000
    seconds: float = 45.0
    """The time limit, after which the demonstration ends with whatever has been delivered."""
    keep: bool = False
    kill: bool = False
    """Whether to kill the worker in the middle and start another."""


@dataclass(frozen=True, slots=True)
class Look:
    """The tables at one moment."""

    at: float
    counts: Mapping[str, Mapping[int, int]]
    lag: float
    """Age of the oldest pending item, seconds."""

    def total(self, status: Status) -> int:
        return sum(counts.get(status, 0) for counts in self.counts.values())


class Show:
    """Runs the script and shows what happens."""

    def __init__(self, script: Script, console: Console) -> None:
        self._script = script
        self._console = console
        self._stop = threading.Event()

    def run(self) -> bool:
        """Runs the demonstration; returns whether no promise was broken."""
        with tempfile.TemporaryDirectory(prefix="boxengine-demo-", ignore_cleanup_errors=True) as folder:
            # PostgreSQL runs under another account if this process is root.
            Path(folder).chmod(0o755)
            stage = Stage(Path(folder))
            try:
                return self._play(stage)
            finally:
                stage.tear_down()

    def _play(self, stage: Stage) -> bool:
        say = self._console.print
        say("Starting PostgreSQL and Valkey, each on a port of its own ...")
        stage.set_up()
        say(f"Starting the worker: boxengine --config {stage.config} start", markup=False)
        stage.start_worker()
        say(
            f"An application now commits {self._script.items:,} items, an order and its outbox row in one transaction.\n"
            "It rolls back one transaction in ten.\n"
        )
        engine = stage.servers.store.engine
        shop = Shop(engine, stage.boxes, items=self._script.items, randomness=random.Random())
        writer = threading.Thread(target=shop.run, name="boxengine-demo-shop", daemon=True)
        writer.start()
        try:
            self._watch(stage, shop)
        finally:
            shop.closed.set()
            writer.join()
        if shop.error is not None:
            raise BoxError(f"the demo's application failed: {shop.error}") from shop.error
        kept = self._tell(judge(shop.committed, stage.record, engine, crashed=self._script.kill))
        if self._script.keep:
            self._wait(stage)
        return kept

    # ── the live picture ─────────────────────────────────────────────────────────────────────────────

    def _watch(self, stage: Stage, shop: Shop) -> None:
        began = time.monotonic()
        last: Look | None = None
        to_kill = self._script.kill
        with Live(console=self._console, auto_refresh=False, transient=False) as live:
            while True:
                look = _look(stage)
                live.update(_picture(look, last, began, shop), refresh=self._console.is_terminal)
                last = look
                if to_kill and look.total(Status.DELIVERED) > self._script.items // 3:
                    to_kill = False
                    stage.kill_worker()
                    self._console.print("kill -9 of the worker; starting another")
                    stage.start_worker()
                if stage.worker_died:
                    raise BoxError(f"the worker ended; its log:\n{stage.log.read_text()[-2000:]}")
                if shop.closed.is_set() and not look.total(Status.PENDING):
                    return
                if time.monotonic() - began > self._script.seconds:
                    self._console.print(f"{self._script.seconds:.0f} seconds are over")
                    return
                self._stop.wait(LOOK_EVERY)

    def _tell(self, checks: list[Check]) -> bool:
        self._console.print()
        for check in checks:
            self._console.print(f"  {_mark(check)}  {check.promise}  [dim]({check.detail})[/]")
        kept = all(check.kept for check in checks)
        if not kept:
            verdict = "[bold red]Not all promises were kept.[/]"
        elif any(check.waiting for check in checks):
            verdict = "[bold yellow]No promise was broken, but not all items were delivered in time: see --seconds.[/]"
        else:
            verdict = "[bold green]All promises kept.[/]"
        self._console.print(f"\n{verdict}")
        return kept

    def _wait(self, stage: Stage) -> None:
        self._console.print("\nStill running, until Ctrl-C. To look around, in another terminal:")
        for name, value in stage.environment.items():
            self._console.print(f"  export {name}={value}", markup=False, soft_wrap=True)
        self._console.print(f"  boxengine --config {stage.config} status", markup=False, soft_wrap=True)
        self._console.print(
            f"  boxengine --config {stage.config} create {OUTBOX} --event-key 1 --payload hello",
            markup=False,
            soft_wrap=True,
        )
        self._console.print(f"  tail -f {stage.record} {stage.log}", markup=False, soft_wrap=True)
        try:
            while not stage.worker_died:
                self._stop.wait(1.0)
        except KeyboardInterrupt:
            self._console.print("stopping")


def _mark(check: Check) -> str:
    if not check.kept:
        return "[red]BROKEN[/] "
    return "[yellow]not yet[/]" if check.waiting else "[green]kept[/]   "


def _look(stage: Stage) -> Look:
    store, clock = stage.servers.store, stage.servers.clock
    boxes = [stage.boxes.box(OUTBOX), stage.boxes.box(INBOX)]
    oldest = [moment for moment in map(store.oldest_pending, boxes) if moment is not None]
    lag = max(0.0, (clock.now() - min(oldest)).total_seconds()) if oldest else 0.0
    return Look(time.monotonic(), {box.name: store.counts(box) for box in boxes}, lag)


def _picture(look: Look, last: Look | None, began: float, shop: Shop) -> Group:
    table = Table("box", "pending", "delivered", "failed", "items/s")
    title = Text(  # above the table, not its title: that would be broken to the table's width
        f"{look.at - began:4.1f} s   {shop.committed.transactions:,} transactions   "
        f"{len(shop.committed.rolled_back):,} items rolled back   lag {look.lag * 1000:.0f} ms"
    )
    for name, counts in look.counts.items():
        delivered = counts.get(Status.DELIVERED, 0)
        before = 0 if last is None else last.counts[name].get(Status.DELIVERED, 0)
        rate = 0.0 if last is None else (delivered - before) / (look.at - last.at)
        pending, failed = counts.get(Status.PENDING, 0), counts.get(Status.FAILED, 0)
        table.add_row(name, f"{pending:,}", f"{delivered:,}", f"{failed:,}", f"{rate:,.0f}")
    return Group(title, table)
