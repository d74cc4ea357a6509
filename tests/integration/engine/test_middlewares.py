"""The examples of ``docs/middlewares.md``, run as they stand there, against real servers."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from boxengine.domain.item import Status
from boxengine.domain.outcome import Failure
from tests.integration.engine.receivers import BatchReceiver, Receiver
from tests.integration.engine.rig import BOX, Rig
from tests.integration.engine.rigs import MakeRig

PAGE = Path(__file__).parents[3] / "docs" / "middlewares.md"


@pytest.fixture(scope="module")
def shop() -> SimpleNamespace:
    (code,) = re.findall(r"```python\n# shop/middlewares.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    namespace: dict[str, Any] = {"__name__": "shop.middlewares"}
    exec(compile(code, "shop/middlewares.py", "exec"), namespace)
    return SimpleNamespace(**namespace)


def create(rig: Rig, key: str, **attributes: Any) -> int:
    """One item, through the middlewares of single items."""
    with rig.engine.begin() as connection:
        return rig.boxes.create_outbox_item(connection, BOX, event_key=key, payload=b"{}", **attributes)


@pytest.mark.parametrize("receiver", [Receiver, BatchReceiver])
def test_the_examples_of_the_page_do_what_it_says(
    make_rig: MakeRig, shop: SimpleNamespace, receiver: type[Receiver], caplog: pytest.LogCaptureFixture
) -> None:
    rig = make_rig()
    transport = receiver(lambda item: Failure("no stock") if item.event_key == "bad" else None)
    rig.carry(transport)
    rig.surround(create_item=[shop.Stamp()], create_batch=[shop.StampEach()])
    with rig.engine.begin() as connection:
        (batched,) = rig.boxes.create_outbox_batch(connection, BOX, [{"event_key": "batched", "payload": b"{}"}])
    good, bad, test = create(rig, "good"), create(rig, "bad"), create(rig, "test-1")
    bare = rig.insert(event_key="bare", bucket=rig.box().partition_strategy("bare", rig.box().bucket_size))
    rig.surround(item_process=[shop.Timed(), shop.Guarded()])
    with caplog.at_level(logging.INFO, "shop"):
        rig.deliver(3)
    assert rig.row(good).status == Status.DELIVERED
    assert (rig.row(bad).status, rig.row(bare).status) == (Status.FAILED, Status.FAILED)
    assert "no stock" in rig.row(bad).error_log
    assert "middleware: no tenant" in rig.row(bare).error_log
    assert (rig.row(test).status, rig.row(test).errors_count) == (Status.PENDING, 0)
    assert sorted(transport.ids) == sorted([good, bad, batched])
    assert {record.args[0] for record in caplog.records if record.name == "shop"} >= {good, bad, bare}  # type: ignore[index]


def test_middlewares_of_the_references_shape_stand_around_every_step(make_rig: MakeRig) -> None:
    def around(*arguments: Any) -> None:
        arguments[-1]()

    rig = make_rig()
    transport = BatchReceiver(lambda item: item.event_key != "bad")
    rig.carry(transport)
    kinds = ("create_item", "create_batch", "poll", "batch_process", "item_process")
    rig.surround(**{kind: [around, around] for kind in kinds})
    first = create(rig, "good")
    second, bad = rig.create("good", "bad")
    rig.deliver(3)
    assert [rig.row(each).status for each in (first, second, bad)] == [2, 2, 1]
    assert [context["item_id"] for _, context in rig.tracked] == [bad]  # and no loop
