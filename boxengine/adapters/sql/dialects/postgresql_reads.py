"""How PostgreSQL reads a box's pending rows: in one way from the start of the buckets, and in another behind bounds.

While bounds are in use, a bucket is read from its bound on. Bounds may pass rows that have an ``available_at``
(``BoxTable.passes_delayed``). So whoever reads behind them also reads those of these rows that are due, through the index over
that column.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from boxengine.adapters.sql.connecting.round_trip import Step
from boxengine.adapters.sql.dialects.base import MOST_PASSED, Behind
from boxengine.adapters.sql.dialects.postgresql_texts import HELD, SHARE, PostgresTexts, numbers, still_pending
from boxengine.domain.box import StrictOrder

SAVEPOINT = "boxengine_claim"
"""Stands before what a claim undoes: rows that it has deleted, or locked only to find those that others have locked."""
ONE_PLAN = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_bitmapscan": "off"}
"""For a transaction with only boxengine's statements: planned once per connection, by index, whatever the table held then.
Otherwise the server plans them again for each batch, half a millisecond, because it expects longer arrays."""
PATIENCE = {"lock_timeout": "500ms"}
"""How long a claim waits for rows, or a table, that somebody else has locked. Those who change a few rows are done sooner."""
Values = tuple["str | int", ...]


class Reads(NamedTuple):
    """The statements that read pending rows in one way. Their values: ``of``."""

    poll: str
    poll_regular: str
    outlook: str
    oldest: str
    read: str
    """A claim's rows, locked."""
    remove: str
    """The same rows, deleted."""
    claiming: Step
    """A claim: its locks and its rows."""
    claiming_alone: Step
    """The same in a transaction that nobody else uses."""
    claiming_removed: Step
    """Takes the locks, makes a savepoint, and deletes the rows. Under strict order it also tells how many they were to be."""
    looking: Step
    """The rows of a claim that locks none."""
    counted: int
    """How many statements ``claiming_removed`` has behind the one that deletes."""
    passed: bool
    """Whether the rows include those that bounds have passed."""

    def of(self, buckets: Mapping[int, int], share: int, *, most: int) -> Values:
        """The values of a statement.

        Args:
            buckets: each with the id after which to read.
            share: rows of each bucket; of a claim, rows of all.
            most: rows among those that bounds have passed.
        """
        values = (numbers(buckets), numbers(buckets.values()), share)
        if not self.passed:
            return values
        anew = buckets.from_start if isinstance(buckets, Behind) else ()
        return (*values, numbers(buckets[bucket] for bucket in anew), numbers(anew), min(most, MOST_PASSED))


def make_reads(texts: PostgresTexts, *, passed: bool) -> Reads:
    """Makes the statements.

    Args:
        passed: whether rows that bounds have passed are read, too.
    """

    def pending(
        columns: str, *, extra: str = "", share: str = "%s", held: str = "", of: str = "", suffix: str = ""
    ) -> str:
        only = f"WHERE held.bucket = ANY({held}) {of}" if held else ""
        found = texts.pending(columns, extra=extra, share=share, suffix=suffix, of=only)
        if passed:
            among = f"AND t.bucket = ANY({held})" if held else ""
            found += f" UNION ALL {texts.due_among_passed(columns, extra=f'{extra} {among}', suffix=suffix)}"
        return found

    columns = f"t.id, t.bucket, {texts.errors('t')}"
    # Runs once the table is locked. From then on, whatever is in the way of outcomes or handlers is waited for.
    unlimited = "AND (SELECT set_config('lock_timeout', NULL, true)) IS NOT NULL"
    read = pending(texts.item_columns(), share=SHARE, held=HELD, of=unlimited, suffix="FOR UPDATE OF t NOWAIT")
    chosen, counted = f"ARRAY({pending('t.id', share=SHARE, held=HELD)})", list[str]()
    if texts.strict_order is not StrictOrder.NONE:
        chosen = f"(SELECT set_config('boxengine.chosen', {chosen}::text, true))::bigint[]"
        counted = ["SELECT cardinality(nullif(current_setting('boxengine.chosen', true), '')::bigint[])"]
    # The condition is tested again: somebody else may have changed a row since the inner query found it.
    remove = (
        f"DELETE FROM {texts.name} AS t WHERE t.id = ANY({chosen}) "
        f"AND {still_pending('t.')} AND {texts.is_due('t')} RETURNING {texts.item_columns()}"
    )
    lock, lock_alone = texts.take_locks(PATIENCE), texts.take_locks({**ONE_PLAN, **PATIENCE})
    return Reads(
        poll=pending(columns),
        poll_regular=pending(columns, extra=f"AND {texts.errors('t')} = 0"),
        outlook=texts.outlook(pending("t.bucket, 0::float8")),
        oldest=texts.longest_waiting(passed=passed),
        read=read,
        remove=remove,
        claiming=Step(lock, read),
        claiming_alone=Step(lock_alone, read),
        # A DELETE always waits.
        claiming_removed=Step(lock_alone, f"SAVEPOINT {SAVEPOINT}", remove, *counted),
        looking=Step(lock, pending("t.id, t.bucket", share=SHARE, held=HELD)),
        counted=len(counted),
        passed=passed,
    )
