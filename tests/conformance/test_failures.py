"""Failure memory: counts and reasons by item, for a limited time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from boxengine.domain.box import Box, BoxType
from boxengine.ports import RememberedFailure
from tests.conformance import coordination
from tests.conformance.coordination import TTL, Rig, make_box

BOX = make_box()
TIMEOUT = RememberedFailure(2, "timeout", uuid="0f6b7b3e-3e63-4a51-8d11-0d4b7a1d8e55")


@pytest.fixture(params=coordination.NAMES)
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    with coordination.open_rig(request.param, request) as opened:
        yield opened


def test_nothing_is_remembered_of_an_item_that_never_failed(rig: Rig) -> None:
    assert rig.failures.recall(BOX, [1, 2]) == {}
    assert rig.failures.recall(BOX, []) == {}


def test_failures_are_recalled_by_item(rig: Rig) -> None:
    remembered = {1: TIMEOUT, 2**62: RememberedFailure(1, "ошибка \N{COLLISION SYMBOL}\n\udc80")}
    rig.failures.remember(BOX, remembered, ttl=TTL)
    assert rig.failures.recall(BOX, [1, 2, 2**62]) == remembered


def test_the_latest_failure_replaces_the_one_before(rig: Rig) -> None:
    rig.failures.remember(BOX, {1: TIMEOUT}, ttl=TTL)
    rig.failures.remember(BOX, {1: RememberedFailure(3, "refused")}, ttl=TTL)
    assert rig.failures.recall(BOX, [1]) == {1: RememberedFailure(3, "refused")}


def test_the_few_that_failed_are_found_among_many(rig: Rig) -> None:
    remembered = {number: RememberedFailure(number, f"no {number}") for number in (1, 5_000, 5_001, 12_000)}
    rig.failures.remember(BOX, remembered, ttl=TTL)
    assert rig.failures.recall(BOX, range(1, 12_001)) == remembered


def test_an_error_message_is_cut_to_two_hundred_characters(rig: Rig) -> None:
    rig.failures.remember(BOX, {1: RememberedFailure(1, "é" * 1000)}, ttl=TTL)
    assert rig.failures.recall(BOX, [1]) == {1: RememberedFailure(1, "é" * 200)}


def test_failures_are_forgotten_on_demand(rig: Rig) -> None:
    rig.failures.remember(BOX, {1: TIMEOUT, 2: TIMEOUT, 3: TIMEOUT}, ttl=TTL)
    rig.failures.forget(BOX, [1, 3, 99])
    rig.failures.forget(BOX, [])
    assert rig.failures.recall(BOX, [1, 2, 3]) == {2: TIMEOUT}


def test_failures_are_forgotten_when_their_time_is_over(rig: Rig) -> None:
    rig.failures.remember(BOX, {1: TIMEOUT}, ttl=TTL)
    rig.failures.remember(BOX, {2: TIMEOUT}, ttl=2 * TTL)
    rig.pass_time(TTL + timedelta(seconds=1))
    assert rig.failures.recall(BOX, [1, 2]) == {2: TIMEOUT}


@pytest.mark.parametrize("other", [make_box("other"), make_box("combined/заказ"), make_box(BOX.name, BoxType.INBOX)])
def test_items_of_different_boxes_do_not_meet(rig: Rig, other: Box) -> None:
    rig.failures.remember(BOX, {1: TIMEOUT}, ttl=TTL)
    assert rig.failures.recall(other, [1]) == {}


def test_remembering_nothing_and_losing_everything_are_harmless(rig: Rig) -> None:
    rig.failures.remember(BOX, {}, ttl=TTL)
    rig.failures.remember(BOX, {1: TIMEOUT}, ttl=TTL)
    rig.flush_all()
    assert rig.failures.recall(BOX, [1]) == {}
    rig.failures.forget(BOX, [1])
