"""Pauses: what people decided about a box, for all workers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from boxengine.domain.box import BoxType
from tests.conformance import coordination
from tests.conformance.coordination import Rig, make_box

BOX = make_box()


@pytest.fixture(params=coordination.NAMES)
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    with coordination.open_rig(request.param, request) as opened:
        yield opened


def test_of_a_box_that_nobody_touched_nothing_is_known(rig: Rig) -> None:
    assert rig.pauses.polling_enabled([BOX]) == {}
    assert rig.pauses.polling_enabled([]) == {}


@pytest.mark.parametrize("enabled", [True, False])
def test_what_was_set_is_remembered(rig: Rig, enabled: bool) -> None:
    rig.pauses.set(BOX, polling_enabled=enabled)
    assert rig.pauses.polling_enabled([BOX]) == {BOX.name: enabled}


def test_the_last_word_counts(rig: Rig) -> None:
    rig.pauses.set(BOX, polling_enabled=False)
    rig.pauses.set(BOX, polling_enabled=True)
    assert rig.pauses.polling_enabled([BOX]) == {BOX.name: True}


@pytest.mark.parametrize("enabled", [True, False])
def test_what_is_forgotten_was_never_said(rig: Rig, enabled: bool) -> None:
    rig.pauses.set(BOX, polling_enabled=enabled)
    rig.pauses.forget(BOX)
    rig.pauses.forget(BOX)
    assert rig.pauses.polling_enabled([BOX]) == {}


def test_only_the_boxes_that_were_touched_are_named(rig: Rig) -> None:
    boxes = [make_box(name) for name in ("a", "combined/outbox_item", "заказ_item", "d")]
    rig.pauses.set(boxes[1], polling_enabled=False)
    rig.pauses.set(boxes[2], polling_enabled=True)
    assert rig.pauses.polling_enabled(boxes) == {boxes[1].name: False, boxes[2].name: True}


def test_many_boxes_are_asked_for_at_once(rig: Rig) -> None:
    sides = (BoxType.OUTBOX, BoxType.INBOX)
    boxes = [make_box(f"{side}/box_{number}", side) for side in sides for number in range(40)]
    assert rig.pauses.polling_enabled(boxes) == {}
    rig.pauses.set(boxes[3], polling_enabled=False)
    rig.pauses.set(boxes[50], polling_enabled=True)
    for _ in range(2):
        assert rig.pauses.polling_enabled(boxes) == {boxes[3].name: False, boxes[50].name: True}
        rig.flush_all()
        assert rig.pauses.polling_enabled(boxes) == {}
        rig.pauses.set(boxes[3], polling_enabled=False)
        rig.pauses.set(boxes[50], polling_enabled=True)
    more = [*boxes, make_box("another")]
    rig.pauses.set(more[-1], polling_enabled=False)
    assert rig.pauses.polling_enabled(more).keys() == {boxes[3].name, boxes[50].name, "another"}


def test_an_inbox_and_an_outbox_of_one_name_are_two(rig: Rig) -> None:
    rig.pauses.set(make_box("item", BoxType.INBOX), polling_enabled=False)
    assert rig.pauses.polling_enabled([make_box("item", BoxType.OUTBOX)]) == {}


def test_after_flushall_the_configuration_decides_again(rig: Rig) -> None:
    rig.pauses.set(BOX, polling_enabled=False)
    rig.flush_all()
    assert rig.pauses.polling_enabled([BOX]) == {}
