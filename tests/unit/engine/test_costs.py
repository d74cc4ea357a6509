"""What a delivered item costs in Python: counted in instructions, which no machine's mood changes."""

from __future__ import annotations

import gc
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import boxengine.engine
from boxengine.adapters.memory.claims import MemoryClaim
from boxengine.domain.item import Item
from boxengine.engine.attempt import error_log
from boxengine.engine.delivering.calls.pipeline import Middlewares, TransportSpec
from boxengine.engine.delivering.calls.sending import Sending
from boxengine.engine.delivering.calls.sent import Sent
from tests.unit.engine.bench import Batches, Bench, Single, spec
from tests.unit.meter import Meter

ENGINE = Path(boxengine.engine.__file__).parent
FEW, MANY = 100, 400


def instructions(items: int, transport: TransportSpec) -> int:
    """Of one batch of so many items, from the claim to the commit."""
    bench = Bench()
    bench.insert(*range(items))
    delivery = bench.delivery(transport)
    with Meter(ENGINE) as meter:
        report = bench.run(delivery)
    assert report.claimed == items
    return meter.instructions


def per_item(transport: Any) -> float:
    """What one more item in a batch costs."""
    instructions(1, spec(transport()))  # From Python 3.12 on, code says what it runs only after its first traced call.
    return (instructions(MANY, spec(transport())) - instructions(FEW, spec(transport()))) / (MANY - FEW)


def test_an_item_of_a_batch_transport_costs_no_instruction() -> None:
    """What is done with each item is done in C."""
    assert per_item(Batches) == 0


def test_an_item_that_is_sent_by_itself_costs_its_own_way_to_the_transport_and_little_else() -> None:
    assert 1 < per_item(Single) <= 300


def test_what_a_batch_costs_beside_its_items_is_bounded() -> None:
    instructions(1, spec(Batches()))
    assert instructions(1, spec(Batches())) <= 1600


@pytest.mark.parametrize("transport", [Batches, Single])
@pytest.mark.parametrize("middlewares", [(), (lambda _item, call_next: call_next(),)])
def test_a_batch_is_gone_once_it_is_done_and_leaves_the_collector_nothing(
    transport: Any, middlewares: tuple[Any, ...]
) -> None:
    """Objects that refer to each other in a ring keep the batch's items until the collector comes, and make it come often."""
    bench = Bench()
    bench.insert(*range(FEW))
    delivery = bench.delivery(spec(transport()), middlewares=Middlewares(item_process=middlewares))
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        report = bench.run(delivery)
        gc.collect()
        # Other tests' threads may leave rings of their own.
        kept = [type(each).__name__ for each in gc.garbage if isinstance(each, Item | Sending | Sent | MemoryClaim)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert report.claimed == FEW
    assert kept == []


def test_what_an_endless_recursion_raised_costs_no_more_to_write_down_than_any_other_error() -> None:
    """Of its thousand frames, the log of the attempt shows thirty."""

    def there(depth: int) -> None:
        back(depth - 1)

    def back(depth: int) -> None:
        if depth < 0:
            raise ValueError("deep enough")
        there(depth - 1)

    def instructions_at(depth: int) -> int:
        with pytest.raises(ValueError, match="deep") as raised:
            there(depth)
        with Meter(Path(traceback.__file__)) as meter:
            error_log(raised.value, where="receiver", now=datetime.now(UTC))
        return meter.instructions

    instructions_at(50)  # the lines of this file are read
    assert instructions_at(500) <= 3 * instructions_at(50)  # which frames those are is found by going through all
