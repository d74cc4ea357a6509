from __future__ import annotations

import pytest

from boxengine.domain import names


@pytest.mark.parametrize(
    ("class_name", "box_name"),
    [
        ("OrderOutboxItem", "order_outbox_item"),
        ("HTTPEventItem", "http_event_item"),
        ("Order2Item", "order2_item"),
        ("Item", "item"),
        ("Combined::OutboxItem", "combined/outbox_item"),
    ],
)
def test_a_class_name_is_underscored_as_rails_does(class_name: str, box_name: str) -> None:
    assert names.underscore(class_name) == box_name


@pytest.mark.parametrize(
    ("box_name", "table"),
    [
        ("order_outbox_item", "order_outbox_items"),
        ("combined/outbox_item", "combined_outbox_items"),
        ("delivery", "deliveries"),
        ("survey", "surveys"),
        ("batch", "batches"),
        ("box", "boxes"),
    ],
)
def test_the_default_table_is_the_plural_of_the_name(box_name: str, table: str) -> None:
    assert names.default_table(box_name) == table
