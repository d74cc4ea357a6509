"""Deliberate bugs of ``storage: log``: of its positions, its side table, and what happens on another server."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from boxengine.adapters.memory.log import table as memory_log
from boxengine.adapters.memory.log.shared import SharedLog
from boxengine.adapters.memory.log.store import LogClaim
from boxengine.adapters.memory.log.table import MemoryLog
from boxengine.adapters.memory.log.transactions import Snapshot
from boxengine.domain import log_progress
from boxengine.domain.log_progress import Move, Portions, Position, Reading, SortedOut
from boxengine.domain.outcome import Settlement
from tests.simulation.mutation import Mutant, Surgery, breaks
from tests.simulation.promises import Promise
from tests.simulation.scenario import MOVING, RESTORED

# ── positions ────────────────────────────────────────────────────────────────────────────────────────


@breaks(Promise.ACKNOWLEDGED, only=())
def highest_id_is_the_position(patch: Surgery) -> None:
    """A bucket's position is the highest id that was delivered: a lower one that commits later is never looked at."""

    def beyond(self: Any, position: Position, upto: str) -> Iterator[int]:
        shown = Snapshot.read(upto)
        for each in self._log.rows.values():
            row = each.row
            if row.bucket == position.bucket and row.id > position.high and shown.shows(each.xact):
                yield row.id

    patch.setattr(MemoryLog, "_between", beyond)


@breaks(Promise.ACKNOWLEDGED, only=())
def running_transactions_forgotten(patch: Surgery) -> None:
    """A snapshot is a number: what was in progress when it was taken counts as passed with it."""
    read = Snapshot.read
    patch.setattr(Snapshot, "read", lambda text: read(text)._replace(running=frozenset()))


@breaks(Promise.ACKNOWLEDGED)
def passed_without_stepping_aside(patch: Surgery) -> None:
    """Items without an outcome are passed over where others behind them have one."""

    def careless(reading: Reading, settled: Collection[int] | None, aside: Collection[int] = ()) -> Move | None:
        found = log_progress.move(reading, settled, aside)
        return found and replace(found, aside=())

    patch.setattr(memory_log, "move", careless)


@breaks(Promise.ACKNOWLEDGED, only=("commit fails",))
def position_written_before_the_settlement(patch: Surgery) -> None:
    """The position is moved in a transaction of its own; what was to step aside with it is lost if the other one fails."""
    commit = LogClaim.commit

    def apart(self: Any, settlement: Settlement) -> Any:
        logged = settlement.only(self._bucket_of)
        self._log.move_on(self._readings.values(), set(logged.ids))
        self._readings = {}
        return commit(self, settlement)

    patch.setattr(LogClaim, "commit", apart)


@breaks(Promise.ACKNOWLEDGED, only=())
def position_written_with_the_claim(patch: Surgery) -> None:
    """The position is moved as soon as rows are read, whatever becomes of them."""
    read = LogClaim._read

    def eager(self: Any, after: Any, limit: int) -> Any:
        found = read(self, after, limit)
        self._log.move_on(self._readings.values(), {item.id for item in found[0]})
        self._readings = {}
        return found

    patch.setattr(LogClaim, "_read", eager)


@breaks(Promise.ACKNOWLEDGED, only=())
def buckets_that_a_claim_has_not_come_to_count_as_empty(patch: Surgery) -> None:
    """Others have filled the claim, and the buckets behind them are passed as if they had been read."""
    sort_out = Portions.sort_out

    def blind(self: Portions, found: Mapping[int, int]) -> SortedOut:
        return sort_out(self, found)._replace(unread=frozenset())

    patch.setattr(Portions, "sort_out", blind)


# ── the side table ───────────────────────────────────────────────────────────────────────────────────


@breaks(Promise.ORDER, only=("item refused",))
def side_rows_overtaken(patch: Surgery) -> None:
    """Under strict order by key the log goes on for a key that has a failed or waiting item in the side table."""
    patch.setattr(MemoryLog, "_parked", lambda _self, _bucket, _now: set())


@breaks(Promise.ORDER, only=("item refused",))
def log_goes_on_beside_a_waiting_bucket(patch: Surgery) -> None:
    """Under strict order by bucket the log goes on though an item of it waits in the side table."""
    patch.setattr(MemoryLog, "_is_blocked", lambda _self, _bucket, _now: False)


@breaks(Promise.ENDS, only=("item refused",), first=148)
def parked_items_never_step_aside(patch: Surgery) -> None:
    """Found by the simulation: a claim that finds only items which must wait writes nothing, and is made again for ever."""
    patch.setattr(LogClaim, "leave_empty", lambda _self: None)


# ── another server ───────────────────────────────────────────────────────────────────────────────────


@breaks(Promise.ENDS, only=(MOVING,))
def another_server_not_noticed(patch: Surgery) -> None:
    """Positions in another server's numbers are taken for this one's: what is written there counts as passed long ago."""
    patch.setattr(SharedLog, "is_foreign", property(lambda _self: False))


@breaks(Promise.ACKNOWLEDGED, only=(MOVING,))
def written_on_another_server_and_forgotten(patch: Surgery) -> None:
    """As positions begin anew, what was written on the new server already is taken for delivered."""
    in_doubt = MemoryLog._is_in_doubt

    def forgetful(self: Any, logged: Any) -> bool:
        return in_doubt(self, logged) and logged.server <= self._log.server

    patch.setattr(MemoryLog, "_is_in_doubt", forgetful)


@breaks(Promise.FINAL, only=(MOVING,))
def delivered_goes_out_again_on_another_server(patch: Surgery) -> None:
    """As positions begin anew, nothing is known of what was delivered."""
    patch.setattr(MemoryLog, "_is_in_doubt", lambda _self, _logged: True)


@breaks(Promise.ACKNOWLEDGED, only=(RESTORED,))
def waiting_in_a_dump_and_forgotten(patch: Surgery) -> None:
    """As positions begin anew, the rows of a restored dump are taken for delivered."""
    in_doubt = MemoryLog._is_in_doubt

    def forgetful(self: Any, logged: Any) -> bool:
        return in_doubt(self, logged) and logged.server > self._log.server

    patch.setattr(MemoryLog, "_is_in_doubt", forgetful)


LOG_MUTANTS: tuple[Mutant, ...] = (
    highest_id_is_the_position,
    running_transactions_forgotten,
    passed_without_stepping_aside,
    position_written_before_the_settlement,
    position_written_with_the_claim,
    side_rows_overtaken,
    log_goes_on_beside_a_waiting_bucket,
    parked_items_never_step_aside,
    another_server_not_noticed,
    written_on_another_server_and_forgotten,
    delivered_goes_out_again_on_another_server,
    waiting_in_a_dump_and_forgotten,
)
