"""Which rules of ``console.hide`` are about which box."""

from __future__ import annotations

import pytest

from boxengine.web.console.hiding import Hiding


@pytest.mark.parametrize("box", ["order_outbox_item", "order_outbox_item.billing"])
def test_a_rule_of_a_box_is_one_of_its_subscriptions_too(box: str) -> None:
    whole, paths = Hiding({"order_outbox_item": None}), Hiding({"order_outbox_item": ("card",)})
    assert whole.payload(box, b'{"card": "4711"}').kind == "hidden"
    assert "4711" not in paths.payload(box, b'{"card": "4711"}').text


def test_a_rule_of_a_subscription_is_not_one_of_the_others() -> None:
    hiding = Hiding({"order_outbox_item.billing": None})
    assert [hiding.hides(f"order_outbox_item.{name}") for name in ("billing", "search")] == [True, False]
