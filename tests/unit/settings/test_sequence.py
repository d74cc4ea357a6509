"""``sequence``: in the file, or by the model's mixin."""

from __future__ import annotations

import pytest

from tests.unit.settings.folder import Folder

BOX = """
    outbox_items:
      order_outbox_item:
        transports: {log: {}}
        %s
"""


@pytest.mark.parametrize(("key", "expected"), [("", False), ("sequence: false", False), ("sequence: true", True)])
def test_a_box_is_numbered_if_the_file_says_so(folder: Folder, key: str, expected: bool) -> None:
    assert folder.resolved(BOX % key).pipelines["order_outbox_item"].box.sequence is expected


def test_a_model_with_the_mixin_says_so_itself(folder: Folder) -> None:
    model = "model: tests.integration.test_sequence.OrderOutboxItem"
    assert folder.resolved(BOX % model).pipelines["order_outbox_item"].box.sequence is True


def test_a_model_without_a_column_for_the_numbers_is_refused_with_what_to_do(folder: Folder) -> None:
    keys = "model: tests.integration.test_sequence.PlainOutboxItem\n        sequence: true"
    problems = folder.problems((BOX % keys).replace("order_", "plain_"))
    assert list(problems) == ["outbox_items.plain_outbox_item.sequence"]
    assert "expected the mixin boxengine.SequencedItem" in problems["outbox_items.plain_outbox_item.sequence"]
