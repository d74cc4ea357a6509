"""Holds a history to the promises of SEMANTICS 9, from what was sent and what was committed alone.

The checker knows the policies of the boxes and nothing of the engine. ``violations`` returns each broken promise with a
sentence that tells where; an empty list means that the history is sound.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import permutations

from boxengine.adapters.memory.rows import Row
from boxengine.domain.box import Box, Storage, StrictOrder
from boxengine.domain.item import Status
from tests.simulation.promises import Promise, Violation
from tests.simulation.record import Change, Record, Send
from tests.simulation.scenario import CANCELLED, RESTORED
from tests.simulation.timeline import ItemLife, lives

NOT_THE_ITEMS_FAULT = frozenset(
    {"item refused", "item raises", "item sent, then raises", "middleware raises", "payload builder raises", CANCELLED}
)
ENDED = "the worker ended while sending this item"
DEATHS = 6
"""Of workers, until an item that ends them has failed: five, and one where others came first in the batch that was to clear
its bucket."""
DIES_OTHERWISE = frozenset({"crash", "worker crashes"})
FORGETS = frozenset(
    {"redis unavailable", "redis answer lost", "redis down", "redis flushed", "leases lost", "pause", "worker pauses"}
)
"""Faults with which Redis may not know who died, or of what."""
HARMLESS = frozenset({"foreign jobs", "duplicate jobs", "wake-up twice"})
PAUSES_UNHEARD = frozenset({"redis unavailable", "redis answer lost", "redis down", "pause", "worker pauses"})
"""Faults with which a worker may not hear of a pause in time, or may act on what it heard long before."""
BEGUN_ANEW = frozenset({"operator", RESTORED})
"""By whom a row may be changed in any way."""
WHOLE_BATCH = frozenset({"batch raises", "batch sent, then raises"})


def violations(record: Record) -> list[Violation]:
    """Every broken promise of one history."""
    return [Violation(promise, text) for promise, text in _checks(record)]


def _checks(record: Record) -> Iterator[tuple[Promise, str]]:
    for error in record.errors:
        yield Promise.SOUND, f"the engine raised what no fault explains:\n{error}"
    for name, box in record.boxes.items():
        known = lives(record, name)
        yield from _each(Promise.FINAL, _finished_rows_stay(record, box))
        yield from _each(Promise.ATTEMPTS, _attempts_counted(record, box))
        yield from _each(Promise.OVERTAKEN, _discarded_for_a_reason(record, box))
        for life in known.values():
            yield from _each(Promise.ENDS, _ended(life, known))
            yield from _each(Promise.ACKNOWLEDGED, _acknowledged(record, life))
            yield from _each(Promise.ATTEMPTS, _failed_in_time(record, box, life))
            yield from _each(Promise.PAUSES, _not_too_early(box, life))
            yield from _each(Promise.ONCE, _sent_once(record, box, life))
            yield from _each(Promise.ISOLATED, _poison_stays_alone(record, box, life))
        yield from _each(Promise.OVERTAKEN, _overtaken_items_stay(record, box, known))
        yield from _each(Promise.ORDER, _in_order(record, box, known))
        yield from _each(Promise.EFFECTS, _effects_once(record, box, known))
    yield from _each(Promise.CARE, _killers_found(record))
    yield from _each(Promise.CARE, _nobody_else_accused(record))
    yield from _each(Promise.FENCED, _fenced(record))
    yield from _each(Promise.STOPPED, _stopped(record))
    yield from _each(Promise.PROMPT, _prompt(record))


def _each(promise: Promise, texts: Iterator[str]) -> Iterator[tuple[Promise, str]]:
    return ((promise, text) for text in texts)


# ── no loss ──────────────────────────────────────────────────────────────────────────────────────────


def _ended(life: ItemLife, known: dict[int, ItemLife]) -> Iterator[str]:
    """Delivered, or failed or discarded with a reason; or gone after that."""
    row = life.last
    if row.status == Status.PENDING and not life.deleted and not _is_parked(life, known):
        yield f"item {life.id} never ended: pending with {row.errors_count} errors"
    if row.status == Status.FAILED and not row.error_log:
        yield f"item {life.id} failed without a reason"


def _is_parked(life: ItemLife, known: dict[int, ItemLife]) -> bool:
    return any(
        other.id < life.id and other.key == life.key and not other.deleted and other.last.status == Status.FAILED
        for other in known.values()
    )


def _engine_changes(record: Record, box: Box) -> Iterator[tuple[Change, Row]]:
    """What neither an operator nor a restored dump did to a committed row, and the row before it."""
    for change in record.changes:
        if change.box == box.name and change.before is not None and change.by not in BEGUN_ANEW:
            yield change, change.before


def _finished_rows_stay(record: Record, box: Box) -> Iterator[str]:
    for change, before in _engine_changes(record, box):
        if before.status != Status.PENDING and change.after is not None:
            yield f"item {before.id} was {Status(before.status).name} and was changed once more by {change.by}"
        if change.after is None and not _may_be_deleted(box, change, before):
            yield f"item {before.id} was deleted by {change.by} while {Status(before.status).name}"


def _attempts_counted(record: Record, box: Box) -> Iterator[str]:
    for change, before in _engine_changes(record, box):
        after = change.after
        if after is None or after.status != Status.PENDING or change.by != "engine":
            continue
        if after.errors_count <= before.errors_count:
            yield f"item {before.id}: a failed attempt was not counted"


def _discarded_for_a_reason(record: Record, box: Box) -> Iterator[str]:
    for change, before in _engine_changes(record, box):
        if change.after is None or change.after.status != Status.DISCARDED:
            continue
        if not _is_overtaken(record, box, change, before):
            yield f"item {before.id} was discarded, and no later item of its key had been delivered"


def _may_be_deleted(box: Box, change: Change, row: Row) -> bool:
    if change.by == "engine":
        return box.retention.deletes_on_delivery and row.status == Status.PENDING
    return row.status != Status.PENDING


def _is_overtaken(record: Record, box: Box, change: Change, row: Row) -> bool:
    return box.name in record.latest_available and any(
        other.after.status == Status.DELIVERED
        and other.after.event_key == row.event_key
        and other.after.event_name == row.event_name
        and other.after.id > row.id
        for other in record.changes
        if other.box == box.name and other.after is not None and other.step <= change.step
    )


def _overtaken_items_stay(record: Record, box: Box, known: dict[int, ItemLife]) -> Iterator[str]:
    """Under ``latest_available`` nothing that was tried before goes out once a later item of its key is delivered."""
    if box.name not in record.latest_available:
        return
    for life in known.values():
        for send in life.sends:
            opened = send.claim.opened
            row = life.row_at(opened)
            if row is None or row.processed_at is None:
                continue
            for other in known.values():
                if other.id <= life.id or (other.key, other.event_name) != (life.key, life.event_name):
                    continue
                later = other.row_at(opened)
                # Retention may delete the later one before the engine asks for it.
                if later is not None and later.status == Status.DELIVERED and other.row_at(send.step) is not None:
                    yield f"item {life.id} was sent at step {send.step}, after item {other.id} of its key was delivered"


SLOW = 0.1
"""Seconds; transports slower than this keep others waiting."""
PROMPT = {"default": 0.8, "aggressive": 0.8, "low-priority": 2.0}
"""Virtual seconds; a hint that gets lost inside the engine costs at least a check's interval, which is more."""


def _prompt(record: Record) -> Iterator[str]:
    """Where nothing goes wrong, an item does not wait: neither for a check of its box nor for a lease to run out."""
    waits = any(change.after is not None and change.after.available_at is not None for change in record.changes)
    if record.faults.keys() - HARMLESS or record.poisoned or waits or record.transport_time > SLOW:
        return
    if record.long_queues:
        return  # what the queue does not take waits for a poll
    for box in record.boxes:
        for life in lives(record, box).values():
            took = life.delivery.at - life.changes[0].at if life.delivery is not None else 0.0
            if took > PROMPT[record.tactic]:
                yield f"item {life.id} of {box} took {took:.1f} s, and nothing stood in its way"


# ── acknowledged ─────────────────────────────────────────────────────────────────────────────────────


def _acknowledged(record: Record, life: ItemLife) -> Iterator[str]:
    """Delivered is written only after every transport of the item confirmed it, in that very claim."""
    change = life.delivery
    if change is None:
        return
    confirmed = {
        send.transport
        for send in life.sends
        if send.acknowledged and send.claim is change.claim and send.step <= change.step
    }
    missing = set(record.routes[change.box][life.event_name]) - confirmed
    if missing:
        yield f"item {life.id} was marked delivered; {', '.join(sorted(missing))} had not confirmed it"
    if change.claim is not None and life.id in change.claim.refused:
        yield f"item {life.id} was marked delivered after an attempt that failed"


# ── retries ──────────────────────────────────────────────────────────────────────────────────────────


def _failed_in_time(record: Record, box: Box, life: ItemLife) -> Iterator[str]:
    """Failed for good after ``max_retries`` retries: not before, and no attempt after it."""
    attempts = 0
    since = 0
    for change in life.changes:
        if change.by == "operator":
            since = change.step
        if change.by == RESTORED:
            since = 0  # perhaps as it was before the operator
        if change.after is None or change.before is None:
            continue
        if change.after.status == Status.FAILED and change.by == "engine":
            attempts = sum(life.id in claim.failures for claim in record.claims if since <= claim.opened <= change.step)
            if ENDED in (change.after.error_log or ""):
                continue  # see _nobody_else_accused
            if box.max_retries is None or attempts <= box.max_retries:
                yield f"item {life.id} failed for good after {attempts} attempts; max_retries is {box.max_retries}"
        if (
            change.after.status == Status.PENDING
            and change.by == "engine"
            and box.max_retries is not None
            and change.after.errors_count > box.max_retries
        ):
            yield f"item {life.id} goes on after {change.after.errors_count} errors; max_retries is {box.max_retries}"


def _not_too_early(box: Box, life: ItemLife) -> Iterator[str]:
    """No attempt within the pause after a failed one, by the store's clock; none before ``available_at``."""
    for send in life.sends:
        row = life.row_at(send.claim.opened)
        if row is None:
            continue
        if row.available_at is not None and send.claim.now < row.available_at:
            yield f"item {life.id} was sent before it was available"
        # A row without failed attempts is due at once, whatever its processed_at: an operator has had it retried.
        tried = row.processed_at is not None and row.errors_count > 0 and row.status == Status.PENDING
        if box.backoff is not None and row.processed_at is not None and tried:
            due = row.processed_at + box.backoff.pause(row.errors_count, row.id)
            if send.claim.now < due:
                yield f"item {life.id} was tried again within its pause, at step {send.step}"


# ── duplicates ───────────────────────────────────────────────────────────────────────────────────────


def _sent_once(record: Record, box: Box, life: ItemLife) -> Iterator[str]:
    """More than one clean send of an item to a transport needs a reason; so does a send after the outcome."""
    allowed = 1 + sum(change.by in BEGUN_ANEW for change in life.changes)
    clean: dict[str, int] = defaultdict(int)
    written: set[tuple[str, int]] = set()
    for send in life.sends:
        if send.transactional and (send.transport, id(send.claim)) in written:
            continue  # what was written before was undone, because of another item: see _effects_once
        if send.claim.cut and (life.delivery is None or life.delivery.claim is not send.claim):
            continue  # the batch ended while another item was on its way to a later transport
        if send.claim.committed and life.id not in send.claim.failures:
            clean[send.transport] += 1
            written.add((send.transport, id(send.claim)))
    for transport, count in clean.items():
        if count > allowed:
            yield f"item {life.id} was sent to {transport} {count} times, and every time all went well"
    if life.delivery is not None:
        for send in life.sends:
            if send.claim.opened > life.delivery.step:
                yield f"item {life.id} was claimed and sent again after it was delivered, at step {send.step}"


def _poison_stays_alone(record: Record, box: Box, life: ItemLife) -> Iterator[str]:
    """One item that no transport takes does not make others fail."""
    others = record.faults.keys() & (NOT_THE_ITEMS_FAULT | WHOLE_BATCH)
    if (
        others
        or record.faults.keys() & DIES_OTHERWISE
        or (box.name, life.id) in record.killing
        or sum(name == box.name for name, _ in record.poisoned) > 1
        or (box.name, life.id) in record.poisoned
    ):
        return
    if any(change.after is not None and change.after.errors_count > 0 for change in life.changes):
        yield f"item {life.id} failed because of a poisoned one in its batch"


def _killers_found(record: Record) -> Iterator[str]:
    """An item that ends the process is known after few deaths, where nothing else ends processes and Redis remembers."""
    if record.faults.keys() & (DIES_OTHERWISE | FORGETS):
        return
    known = {name: lives(record, name) for name in record.boxes}
    killers = [known[box][item] for box, item in record.killing]
    # Counted together: what one of them ended may have been about another as well.
    most = DEATHS * sum(1 + sum(change.by == "operator" for change in killer.changes) for killer in killers)
    if len(record.killed_by) > most:
        yield f"{len(killers)} items ended {len(record.killed_by)} processes, which is more than {most}"
    for killer in killers:
        if killer.delivery is not None:
            yield f"item {killer.id} ends every process, and was delivered"


def _nobody_else_accused(record: Record) -> Iterator[str]:
    """Only an item that was alone in hand of three workers that are gone is failed for them.

    A worker that was suspended for longer than its lease lasts is as good as gone: nobody can tell it from a dead one.
    """
    for change in record.changes:
        row = change.after
        if row is None or change.by != "engine" or ENDED not in (row.error_log or ""):
            continue
        if change.before is not None and change.before.error_log == row.error_log:
            continue
        notes = [
            alone
            for alone in record.alone
            if (alone.box, alone.item) == (change.box, str(row.id)) and alone.step <= change.step
        ]
        gone = {alone.worker for alone in notes if alone.over is None or alone.over > change.step} - {notes[-1].worker}
        if len(gone) < 3:
            yield f"item {row.id} failed at step {change.step} for {len(gone)} workers that were gone with it alone in hand"


def _fenced(record: Record) -> Iterator[str]:
    """Work that is not recorded, or whose recording is not known, has a fault to show; each repeats one batch at most."""
    sends: dict[int, list[Send]] = defaultdict(list)
    for send in record.sends:
        sends[id(send.claim)].append(send)
    for claim in record.claims:
        own = sends.get(id(claim), ())
        if own and not claim.committed and not claim.fault:
            yield f"a claim of {claim.worker} at step {claim.opened} was not committed, for no reason"
        most = record.rows_per_claim[claim.box]
        if len({send.item for send in own}) > most:
            yield f"a claim of {claim.worker} at step {claim.opened} sent more than {most} items"
        if claim.asked_again:
            yield f"{claim.worker} asked again for buckets that it had been refused, at step {claim.opened}"
        # The leases are looked at before an item or batch begins, not before each of its transports.
        # A batch that raised is narrowed down to the guilty item first.
        if claim.late_calls > _transports(record, claim.box) and not claim.batch_raised:
            yield f"{claim.worker} went on sending after its leases had run out: {claim.late_calls} calls"


def _stopped(record: Record) -> Iterator[str]:
    """A pause is looked at before an item or batch begins, not before each of its transports."""
    if record.faults.keys() & PAUSES_UNHEARD:
        return
    for claim in record.claims:
        if claim.calls_of_a_paused_box > _transports(record, claim.box):
            yield f"{claim.worker} went on sending items of a paused box: {claim.calls_of_a_paused_box} calls"


def _transports(record: Record, box: str) -> int:
    """The most that an item of the box has to reach."""
    return max(len(routes) for routes in record.routes[box].values())


# ── order ────────────────────────────────────────────────────────────────────────────────────────────


def _in_order(record: Record, box: Box, known: dict[int, ItemLife]) -> Iterator[str]:
    """First deliveries follow the ids: within a key, under strict order by bucket within the bucket.

    Of a log they follow the commits: nobody serialises its writers, and what was committed before another was written goes first.
    """
    scopes: dict[object, list[ItemLife]] = defaultdict(list)
    for life in known.values():
        scopes[life.bucket if box.strict_order is StrictOrder.BUCKET else life.key].append(life)
    for scope in scopes.values():
        scope.sort(key=lambda life: life.id)
        if box.storage is Storage.LOG:
            for earlier, later in permutations(scope, 2):
                if _was_there(record, box, earlier, later):
                    yield from _pair_in_order(record, box, earlier, later)
            continue
        for place, earlier in enumerate(scope):
            for later in scope[place + 1 :]:
                yield from _pair_in_order(record, box, earlier, later)


def _was_there(record: Record, box: Box, earlier: ItemLife, later: ItemLife) -> bool:
    """Whether one item of a log was committed when the other was written, or stood before it in the same transaction."""
    in_one = earlier.inserted == later.inserted and earlier.id < later.id
    return in_one or earlier.inserted < record.written[box.name, later.id]


def _pair_in_order(record: Record, box: Box, earlier: ItemLife, later: ItemLife) -> Iterator[str]:
    if later.inserted < earlier.inserted:
        return  # only across keys: nobody could know of the earlier one yet
    moments = [(transport, send) for transport, send in later.first.items() if transport in earlier.routes]
    if later.complete is not None:
        moments.append(("", later.complete))
    for transport, moment in moments:
        first = earlier.first.get(transport) if transport else earlier.complete
        if first is not None and first.place < moment.place:
            continue
        if any(_may_be_overtaken(box, earlier, step) for step in _judged_at(record, moment)):
            continue
        where = f"to {transport}" if transport else "to all its transports"
        yield f"item {later.id} was delivered {where} at step {moment.step}, before item {earlier.id}"


def _judged_at(record: Record, send: Send) -> Iterator[int]:
    """The steps whose rows decide what a delivery may overtake: its own and, if a dump was restored during its claim, the one at
    which the claim was opened. Its call was under way, and what it had read is gone."""
    yield send.step
    if any(send.claim.opened < restored <= send.step for _, restored in record.undone):
        yield send.claim.opened


def _may_be_overtaken(box: Box, earlier: ItemLife, moment: int) -> bool:
    row = earlier.row_at(moment)
    if row is None or row.status == Status.DISCARDED:
        return True
    match box.strict_order:
        case StrictOrder.KEY:
            return False
        case StrictOrder.BUCKET:
            return row.status == Status.FAILED
        case StrictOrder.NONE:
            failed = row.status == Status.FAILED or earlier.attempt_failed_by(moment)
            return row.available_at is not None or failed


# ── what transports wrote through the session ────────────────────────────────────────────────────────


def _effects_once(record: Record, box: Box, known: dict[int, ItemLife]) -> Iterator[str]:
    """What a transport wrote in the claim's transaction is there exactly once for each delivery of an item, else not at all."""
    counts: dict[int, int] = defaultdict(int)
    for name, _, item in record.effects:
        if name == box.name:
            counts[item] += 1
    through_session = {send.item for send in record.sends if send.transactional and send.claim.box == box.name}
    for item in through_session:
        expected = sum(not any(begin < step < end for begin, end in record.undone) for step in known[item].deliveries)
        if counts[item] != expected:
            yield f"item {item}: its transport's own writes were committed {counts[item]} times, not {expected}"
