"""What a model may say of its items: options for their transports, details for their log lines and errors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from boxengine.domain.item import Item, Status
from tests.unit.engine.bench import Batches, Bench, Single, spec
from tests.unit.telemetry.samples import BOX, item

EXTRA = {"key": "of the model", "headers": {"Tenant": "acme", "Kind": "usual"}, "ttl": 5}


class Looking(Single):
    def __init__(self) -> None:
        super().__init__(self.look)
        self.seen: list[Item] = []

    def look(self, item: Item) -> None:
        self.seen.append(item)


def test_transports_get_extra_options_under_the_items_own() -> None:
    bench, looking = Bench(extra_options=lambda _item: EXTRA), Looking()
    bench.insert(1, options={"key": "own", "headers": {"Kind": "express"}})
    bench.insert(2)
    bench.deliver(spec(looking))
    own, without = looking.seen
    assert own.options == {"key": "own", "headers": {"Tenant": "acme", "Kind": "express"}, "ttl": 5}
    assert own.headers.items() >= {"Tenant": "acme", "Kind": "express", "Sequence-ID": str(own.id)}.items()
    assert without.options == EXTRA


def test_the_payload_builder_sees_them_too_and_the_hook_sees_the_items_own() -> None:
    bench = Bench(
        extra_options=lambda item: {"again": item.options["n"]}, payload_builder=lambda item: item.options["again"]
    )
    looking = Looking()
    bench.insert(1, options={"n": 3})
    bench.deliver(spec(looking))
    assert looking.payloads == [3]


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (lambda: 1 / 0, "extra_options: ZeroDivisionError: division by zero"),
        (lambda: None, "extra_options: TypeError: extra_options: expected a mapping, got NoneType"),
    ],
)
def test_options_that_cannot_be_had_are_a_failed_attempt_of_their_item_alone(broken: Any, reason: str) -> None:
    bench = Bench()
    (bad,), (good,) = bench.insert(1), bench.insert(2)
    bench.box = replace(bench.box, extra_options=lambda item: broken() if item.id == bad else {})
    bench.deliver(spec(Batches()))
    assert bench.row(bad).status == Status.FAILED
    assert reason in bench.row(bad).error_log
    assert bench.row(good).status == Status.DELIVERED


def test_the_error_tracker_is_told_the_details_of_an_item_that_failed() -> None:
    bench = Bench(
        extra_options=lambda _item: {"order": 7}, extra_log_details=lambda item: {"order": item.options["order"]}
    )
    (row_id,) = bench.insert(1, bucket=3)
    bench.deliver(spec(Single(lambda _item: False), name="http"))
    ((error, context),) = bench.tracked
    assert error == "http: returned False"
    assert context == {
        "box_name": "order_outbox_item",
        "bucket": 3,
        "item_id": row_id,
        "event_key": "1",
        "where": "http",
        "item_details": {"order": 7},
    }


def test_without_hooks_an_item_is_taken_as_it_is() -> None:
    plain = item(1, options='{"a": 1}')
    assert plain.with_extra_options() is plain
    assert plain.log_details == {}
    assert plain.options == {"a": 1}
    assert BOX.extra_options is None
