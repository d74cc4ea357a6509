"""What one history is about, drawn from its seed: boxes and their policies, workers and their limits, faults."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from typing import assert_never

from boxengine.domain.bounds import PACE, Pace
from boxengine.domain.box import Backoff, Box, BoxType, CircuitPolicy, Retention, Storage, StrictOrder, Subscription
from boxengine.domain.retry import ExponentialBackoff, LatestAvailable, NoDelay, RetryStrategy
from boxengine.engine.delivering.holds.sizing import WORTH_SHARING

AT_CALLS = {
    "crash": (0.002, 0.02),
    "pause": (0.002, 0.02),
    "commit fails": (0.03, 0.3),
    "commit acknowledged late": (0.03, 0.3),
    "store unavailable": (0.02, 0.15),
    "redis unavailable": (0.01, 0.1),
    "redis answer lost": (0.01, 0.1),
    "item refused": (0.05, 0.4),
    "item raises": (0.05, 0.3),
    "item sent, then raises": (0.05, 0.3),
    "batch raises": (0.05, 0.4),
    "batch sent, then raises": (0.05, 0.4),
    "transport slow": (0.02, 0.3),
    "middleware raises": (0.03, 0.2),
    "payload builder raises": (0.03, 0.2),
    "wake-up lost": (0.1, 1.0),
    "wake-up late": (0.1, 1.0),
    "wake-up twice": (0.1, 0.5),
}
"""Chance at each call, lowest and highest."""
KILLING = "killing item"
KILLS = 0.08
"""Chance that an item which is written ends each process that sends it."""
WITH_KILLING = 0.15
"""Share of the histories that have such items."""
MOVING = "database moved"
MOVES = (1.0, 4.0)
"""Mean seconds between two, shortest and longest."""
WITH_MOVING = 0.15
"""Share of the histories with a log box in which the database moves to another server."""
RESTORED = "dump restored"
WITH_RESTORED = 0.15
"""Share of the histories whose boxes all have logs in which a dump is restored."""
AWAY = "receiver away"
GOES_AWAY = (0.05, 0.5)
"""Chance at each call that the receiver cannot be reached for a while, lowest and highest."""
WITH_AWAY = 0.2
"""Share of the histories in which receivers go away."""
STOPPED, FAILING, REWOUND = "subscription stopped", "subscription fails", "subscription rewound"
OF_SUBSCRIPTIONS = {STOPPED: (0.3, 2.0), FAILING: (0.3, 2.0), REWOUND: (0.2, 1.5)}
"""Mean seconds between two, shortest and longest."""
WITH_EACH = 0.3
"""Share of the histories with subscriptions that have such a fault, for each of them."""
WITH_SUBSCRIPTIONS = 0.5
"""Share of the log boxes that are read by subscriptions."""
WITH_PARTITIONS = 0.4
"""Share of the log boxes that have partitions."""
NAMES = ("billing", "search", "audit")
WITH_LOG = 0.3
"""Share of the boxes that may have a log which have one."""
WITH_COROUTINES = 0.4
"""Share of the boxes with a transport for single items whose transports for these are coroutines."""
WITH_BOUNDS = 0.4
"""Share of the histories in which looks and claims begin behind what is done."""
WITHOUT_LEASES = 0.4
"""Share of the histories in which buckets are begun without leases as often as may be."""
SHARED_FROM = 1
"""Rows of a batch after which threads share their buckets, in histories in which they do."""
SHARING_THREADS = 3
"""Threads of a worker in such a history, so that mostly one is idle."""
WITH_SHARING = 0.25
"""Share of the histories in which threads share their buckets."""
LONG = 0
"""A queue with more jobs is long, in histories in which it may be."""
WITH_LONG_QUEUES = 0.2
"""Share of the histories in which a queue may be long."""
CANCELLED = "call cancelled"
"""What comes of a slow coroutine: at the cutoff, or after its timeout."""
FROM_OUTSIDE = {
    "redis flushed": (0.5, 3.0),
    "redis down": (1.0, 4.0),
    "leases lost": (0.3, 2.0),
    "duplicate jobs": (0.2, 1.0),
    "foreign jobs": (0.2, 1.0),
    "clock jump": (0.5, 3.0),
    "worker stops": (1.0, 4.0),
    "worker crashes": (0.5, 3.0),
    "worker pauses": (0.5, 3.0),
    "box paused": (0.5, 3.0),
    "operator": (0.2, 1.0),
}
"""Mean seconds between two, shortest and longest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxPlan:
    """One box and how its items travel."""

    box: Box
    strategies: tuple[RetryStrategy, ...]
    routes: tuple[tuple[str, str | None, str], ...]
    """Transport name, event name, shape: single, batch, both, session, session batch; async, async session."""
    timeout: timedelta | None = None
    """Of transports that are coroutines."""
    item_middleware: bool
    payload_builder: bool
    keys: int
    items: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything that is drawn before a history begins."""

    boxes: tuple[BoxPlan, ...]
    workers: int
    threads: int
    partitions: int
    tactic: str
    rows: int
    flush_after: float
    turn: timedelta
    cutoff: timedelta
    lease_ttl: timedelta
    session_idle: timedelta
    transport_time: float
    """Longest time in seconds that a call of a transport takes where nothing is wrong."""
    chaos: float
    """Virtual seconds with faults."""
    faults: dict[str, float]
    pace: Pace = PACE
    """Of the bounds. In memory no walk is slow, so at the usual pace there are none."""
    without_leases: bool = False
    """Whether buckets are begun without leases in tables too, however long the last batch took, and by workers that are young
    where nothing kills them."""
    share_from: int = WORTH_SHARING
    """Rows of a batch after which threads share their buckets. No batch of a history has as many as in production."""
    longest_queue: int = 100
    """A queue with more jobs is long."""


def draw(random: Random, *, only: Collection[str] | None = None) -> Scenario:
    """A scenario; the same from the same state of ``random``.

    Args:
        only: the faults to choose; None: a random choice.
    """
    lease_ttl = timedelta(seconds=random.choice([0.5, 1, 4]))
    flush_after = random.choice([0.05, 0.2, 1.0, 5.0])
    drawn_boxes = [_awaited(_stored(_box(random, number))) for number in range(random.choice([1, 1, 1, 2]))]
    boxes = tuple(reader for plan in drawn_boxes for reader in _read(plan))
    drawn = Scenario(
        boxes=boxes,
        workers=random.choice([1, 2, 2, 3]),
        threads=random.choice([1, 1, 2]),
        partitions=random.randint(1, 3),
        tactic=random.choice(["default", "default", "aggressive", "low-priority"]),
        rows=random.choice([1, 2, 3, 5, 8, 500]),
        flush_after=flush_after,
        turn=timedelta(seconds=random.choice([0.02, 1.0, 1.0])),
        cutoff=timedelta(seconds=random.choice([0.5, 90])),
        lease_ttl=lease_ttl,
        # Shorter than the longest batch would mean that nothing large is ever recorded.
        session_idle=timedelta(seconds=flush_after + random.choice([0.5, 1, 9])),
        transport_time=random.choice([0.0, 0.0, 0.03, 0.3]),
        chaos=random.uniform(1.0, 6.0),
        faults=_faults(random, only, [plan.box for plan in boxes]),
    )
    if AWAY in drawn.faults:
        drawn = replace(drawn, boxes=tuple(map(_soon_open, boxes)))
    drawn = replace(drawn, session_idle=drawn.session_idle + timedelta(seconds=_to_the_end(drawn)))
    drawn = replace(drawn, pace=_pace(drawn), without_leases=_without_leases(drawn))
    return _shared(drawn)


def _soon_open(plan: BoxPlan) -> BoxPlan:
    """The plan with circuits that open, and are probed, within the time of a history."""
    apart = Random(f"{plan.box.bucket_size} {plan.items} {plan.keys} {plan.routes} circuits")
    pause = timedelta(seconds=apart.choice([0.05, 0.3, 1.0]))
    policy = CircuitPolicy(failures=apart.choice([1, 1, 3]), pause=pause, longest_pause=4 * pause)
    return replace(plan, box=replace(plan.box, circuit_breaker=policy))


def _without_leases(scenario: Scenario) -> bool:
    # Drawn from what has been drawn, as the pace is.
    return Random(f"{scenario.chaos} {scenario.cutoff} leases").random() < WITHOUT_LEASES


def _shared(scenario: Scenario) -> Scenario:
    """The scenario, perhaps with threads that share their buckets, and perhaps with long queues."""
    # Drawn from what has been drawn, as the pace is.
    apart = Random(f"{scenario.chaos} {scenario.cutoff} share")
    if apart.random() < WITH_SHARING:
        scenario = replace(scenario, share_from=SHARED_FROM, threads=SHARING_THREADS)
    return replace(scenario, longest_queue=LONG) if apart.random() < WITH_LONG_QUEUES else scenario


def _pace(scenario: Scenario) -> Pace:
    """Perhaps one at which bounds are used from the first item on.

    Only what an operator brings back may need a look from the start: without an operator there is none, and nothing may lack it.
    """
    # Drawn from what has been drawn: everything else in the history of a seed stays what it is.
    if Random(f"{scenario.chaos} {scenario.cutoff} bounds").random() >= WITH_BOUNDS:
        return PACE
    return Pace(items=1, slow=0.0, parts=2, shortest=5.0 if "operator" in scenario.faults else 1e6, share=0.0)


def _to_the_end(scenario: Scenario) -> float:
    """Seconds that a batch may take longer: a coroutine behind another transport leaves no item out, and those of a key wait."""
    coroutines = set(_COROUTINES.values())
    later = [plan for plan in scenario.boxes if any(shape in coroutines for _, _, shape in plan.routes[1:])]
    return max((plan.items for plan in later), default=0) * scenario.transport_time


def _stored(plan: BoxPlan) -> BoxPlan:
    """The plan, perhaps with a log."""
    if any(isinstance(strategy, LatestAvailable) for strategy in plan.strategies):
        return plan
    # Drawn from what has been drawn: everything else in the history of a seed stays what it is.
    logged = Random(f"{plan.box.bucket_size} {plan.items} {plan.keys} {plan.box.backoff}").random() < WITH_LOG
    if not logged:
        return plan
    apart = Random(f"{plan.box.bucket_size} {plan.items} {plan.keys} {plan.box.backoff} partitions")
    partitions = timedelta(hours=1) if apart.random() < WITH_PARTITIONS else None
    return replace(plan, box=replace(plan.box, storage=Storage.LOG, log_partitions=partitions))


def _read(plan: BoxPlan) -> tuple[BoxPlan, ...]:
    """The plan itself, or those of the subscriptions that read its log, each with a policy of its own."""
    apart = Random(f"{plan.box.bucket_size} {plan.items} {plan.keys} {plan.box.backoff} read")
    if plan.box.storage is not Storage.LOG or apart.random() >= WITH_SUBSCRIPTIONS:
        return (plan,)
    names = NAMES[: apart.choice([2, 2, 3])]
    log = replace(plan.box, subscriptions=names)
    others = [_awaited(_without_latest(_box(apart, number))) for number in range(1, len(names))]
    return tuple(
        replace(
            own,
            box=replace(
                own.box,
                name=f"{log.name}.{name}",
                table=f"{log.table}_{name}",
                storage=Storage.LOG,
                log_partitions=log.log_partitions,
                bucket_size=log.bucket_size,
                retention=log.retention,
                subscriptions=names,
                subscription=Subscription(of=log, name=name),
            ),
            keys=plan.keys,
            items=plan.items,
        )
        for name, own in zip(names, [plan, *others], strict=True)
    )


def _without_latest(plan: BoxPlan) -> BoxPlan:
    kept = tuple(each for each in plan.strategies if not isinstance(each, LatestAvailable))
    return plan if kept == plan.strategies else replace(plan, strategies=kept or (NoDelay(),))


def _awaited(plan: BoxPlan) -> BoxPlan:
    """The plan, perhaps with coroutines."""
    apart = Random(f"{plan.box.bucket_size} {plan.items} {plan.keys} {plan.routes}")
    routes = tuple((name, event, _COROUTINES.get(shape, shape)) for name, event, shape in plan.routes)
    if routes == plan.routes or apart.random() >= WITH_COROUTINES:
        return plan
    timeout = apart.choice([None, timedelta(seconds=0.2), timedelta(seconds=2)])
    return replace(plan, routes=routes, timeout=timeout)


def _faults(random: Random, only: Collection[str] | None, boxes: Sequence[Box]) -> dict[str, float]:
    known = {**AT_CALLS, **FROM_OUTSIDE}
    names = random.sample(sorted(known), random.choice([0, 0, 1, 1, 2, 3, 5, 8, len(known)]))
    if only is not None:
        names = sorted(set(only) & known.keys())
    found = {name: random.uniform(*known[name]) for name in names}
    # Drawn from what has been drawn: without it, the history of a seed stays what it is.
    kills = KILLING in only if only is not None else Random(repr(found)).random() < WITH_KILLING
    apart = Random(f"{found} moves")
    moves = MOVING in only if only is not None else apart.random() < WITH_MOVING
    if moves and any(box.storage is Storage.LOG for box in boxes):
        found[MOVING] = apart.uniform(*MOVES)
    if any(box.subscription is not None for box in boxes):
        found |= _of_subscriptions(Random(f"{found} subscriptions"), only, kills=kills)
    restored = RESTORED in only if only is not None else Random(f"{found} restored").random() < WITH_RESTORED
    if restored and not kills and all(box.storage is Storage.LOG for box in boxes):
        found[RESTORED] = apart.uniform(*MOVES)
    away = Random(f"{found} away")
    if AWAY in only if only is not None else away.random() < WITH_AWAY:
        found[AWAY] = away.uniform(*GOES_AWAY)
    return found | ({KILLING: KILLS} if kills else {})


def _of_subscriptions(random: Random, only: Collection[str] | None, *, kills: bool) -> dict[str, float]:
    found = {}
    for name, span in OF_SUBSCRIPTIONS.items():
        struck = random.random() < WITH_EACH
        if struck if only is None else name in only:
            found[name] = random.uniform(*span)
    if kills:
        # What ends workers and is sent back ends as many again.
        found.pop(REWOUND, None)
    return found


def _box(random: Random, number: int) -> BoxPlan:
    strict = random.choice(list(StrictOrder))
    match strict:
        case StrictOrder.NONE:
            max_retries: int | None = random.choice([0, 1, 3])
        case StrictOrder.KEY:
            max_retries = random.choice([None, 0, 2])
        case StrictOrder.BUCKET:
            max_retries = None
        case _:
            assert_never(strict)
    strategies: tuple[RetryStrategy, ...] = ()
    if strict is StrictOrder.NONE:
        strategies = random.choice(
            [(ExponentialBackoff(), LatestAvailable()), (ExponentialBackoff(),), (NoDelay(),), (LatestAvailable(),)]
        )
    waits = strict is not StrictOrder.NONE or any(isinstance(s, ExponentialBackoff) for s in strategies)
    minimal = random.choice([0.005, 0.1, 1.0])
    backoff = Backoff(
        minimal=timedelta(seconds=minimal),
        maximal=timedelta(seconds=4 * minimal),
        jitter=random.choice([0.0, 0.5]),
    )
    period = random.choice([0.0, 1.0, 1000.0, 1000.0])
    return BoxPlan(
        box=Box(
            name=f"box{number}",
            type=BoxType.OUTBOX,
            table=f"box{number}",
            bucket_size=random.choice([1, 1, 2, 3, 5, 8]),
            strict_order=strict,
            max_retries=max_retries,
            backoff=backoff if waits else None,
            retention=Retention(
                others=timedelta(seconds=1000.0),
                delivered=timedelta(seconds=period),
                batch_size=random.choice([1, 3]),
                pause=timedelta(0),
                window=timedelta(seconds=1),
            ),
        ),
        strategies=strategies,
        routes=random.choice(_ROUTES),
        item_middleware=random.random() < 0.15,
        payload_builder=random.random() < 0.3,
        keys=random.randint(1, 5),
        items=random.choice([random.randint(2, 14), random.randint(2, 14), 20]),
    )


_COROUTINES = {"single": "async", "session": "async session"}
_ROUTES = (
    (("all", None, "batch"),),
    (("first", None, "session batch"), ("second", None, "batch")),
    (("all", None, "single"),),
    (("all", None, "session"),),
    (("all", None, "both"),),
    (("first", None, "batch"), ("second", None, "batch")),
    (("first", None, "single"), ("second", None, "batch")),
    (("of-a", "a", "batch"), ("of-b", "b", "batch")),
    (("of-a", "a", "single"), ("of-b", "b", "batch")),
    (("all", None, "batch"), ("of-b", "b", "batch")),
    (("of-a", "a", "both"), ("of-b", "b", "single"), ("all", None, "single")),
)
