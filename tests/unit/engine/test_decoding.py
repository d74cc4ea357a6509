"""Transports that take ``decoded``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest

from boxengine import Failure, Item, Payload
from boxengine.domain.box import Box, BoxType
from boxengine.engine.delivering.calls.pipeline import TransportSpec
from boxengine.engine.delivering.calls.transports import Carrier
from boxengine.errors import BoxError, Unavailable, Undecodable
from boxengine.ports import Claim
from boxengine.testing import make_item

BOX = Box(name="order_outbox_item", type=BoxType.OUTBOX, table="orders", codec=Payload.json())


class WithSession:
    session = "the session"


CLAIM = cast("Claim", WithSession())


def carrier(transport: Any, *, disposable: bool = False, box: Box = BOX) -> Carrier:
    return Carrier(TransportSpec(name="own", build=lambda: transport, disposable=disposable), box=box)


def items(*payloads: bytes) -> list[Item]:
    return [make_item(box=BOX, id=number, payload=payload) for number, payload in enumerate(payloads, start=1)]


class Single:
    def __init__(self) -> None:
        self.got: list[Any] = []
        self.closed = False

    def __call__(self, item: Item, payload: bytes, *, decoded: Any) -> None:
        self.got.append((item.id, payload, decoded))

    def close(self) -> None:
        self.closed = True


class Batch:
    def __init__(self, answer: Callable[[Sequence[Any]], Any] = list) -> None:
        self.got: list[Any] = []
        self._answer = answer

    def call_batch(self, items: Sequence[Item], *, decoded: Sequence[Any], session: Any) -> Any:
        self.got.append(([item.id for item in items], list(decoded), session))
        return self._answer(decoded)


@pytest.mark.parametrize("disposable", [False, True])
def test_one_item_comes_with_its_bytes_and_its_value(disposable: bool) -> None:
    transport = Single()
    carries = carrier(transport, disposable=disposable)
    item = items(b'{"a": 1}')[0]
    carries.single()(item, item.payload)
    assert transport.got == [(1, b'{"a": 1}', {"a": 1})]
    assert not carries.wants_session
    carries.close()
    assert transport.closed is not disposable


@pytest.mark.parametrize("options", [{"kafka": {"tombstone": True}}, '{"kafka": {"tombstone": true}}'])
def test_a_tombstone_of_kafka_comes_as_none(options: Any) -> None:
    """A codec fails at its empty payload, or reads an empty object out of it."""
    single = Single()
    tombstone = make_item(box=BOX, payload=b"")._replace(raw_options=options)
    carrier(single).single()(tombstone, tombstone.payload)
    assert single.got == [(tombstone.id, b"", None)]


@pytest.mark.parametrize("options", [None, {"kafka": {}}, {"kafka": "tombstone"}, "[]"])
def test_an_empty_payload_that_is_no_tombstone_is_read_by_the_codec(options: Any) -> None:
    with pytest.raises(Undecodable):
        _ = make_item(box=BOX, payload=b"")._replace(raw_options=options).decoded


def test_an_item_that_cannot_be_read_never_reaches_the_transport() -> None:
    transport = Single()
    item = items(b"{")[0]
    with pytest.raises(Undecodable, match="the payload cannot be decoded as json: Expecting property name"):
        carrier(transport).single()(item, item.payload)
    assert transport.got == []


def test_an_outage_of_what_the_codec_needs_is_no_fault_of_the_item() -> None:
    def away(_payload: bytes) -> Any:
        raise Unavailable("the schema registry does not answer")

    box = replace(BOX, codec=Payload("avro Order", encode=bytes, decode=away))
    item = make_item(box=box, payload=b"1")
    with pytest.raises(Unavailable, match="the schema registry"):
        carrier(Single(), box=box).single()(item, item.payload)
    with pytest.raises(Unavailable, match="the schema registry"):
        carrier(Batch(), box=box).send_batch([item], CLAIM)


def test_a_batch_comes_with_its_values_and_the_session() -> None:
    transport = Batch()
    carries = carrier(transport)
    assert carries.wants_session
    assert carries.send_batch(items(b"1", b"2"), CLAIM) == [1, 2]
    assert transport.got == [([1, 2], [1, 2], "the session")]


def test_of_a_batch_those_that_cannot_be_read_fail_alone_and_the_answers_keep_their_places() -> None:
    transport = Batch(answer=lambda decoded: [value != 4 for value in decoded])
    results = carrier(transport).send_batch(items(b"{", b"2", b"?", b"4"), CLAIM)
    assert transport.got == [([2, 4], [2, 4], "the session")]
    assert results[1::2] == [True, False]
    assert [type(result) for result in results[::2]] == [Failure, Failure]
    assert "cannot be decoded as json" in results[0].reason


def test_a_batch_of_which_nothing_can_be_read_calls_nobody() -> None:
    transport = Batch()
    assert len(carrier(transport).send_batch(items(b"{", b"?"), CLAIM)) == 2
    assert transport.got == []


@pytest.mark.parametrize("answers", [0, 2])
def test_a_wrong_number_of_answers_about_the_rest_is_told_as_ever(answers: int) -> None:
    """Also where it is that of all items: nobody could tell which of them the answers are about."""
    with pytest.raises(BoxError, match="given 1 item and must return as many results"):
        carrier(Batch(answer=lambda _decoded: [None] * answers)).send_batch(items(b"{", b"2"), CLAIM)


def test_answers_about_the_rest_may_be_any_sequence_as_ever() -> None:
    results = carrier(Batch(answer=lambda _decoded: deque([None]))).send_batch(items(b"{", b"2"), CLAIM)
    assert isinstance(results[0], Failure)
    assert results[1] is None


def test_an_argument_that_the_configuration_gives_is_not_touched() -> None:
    got = []

    def deliver(item: Item, payload: bytes, decoded: str) -> None:
        got.append(decoded)

    item = items(b"{")[0]
    carrier(partial(deliver, decoded="configured")).single()(item, item.payload)
    assert got == ["configured"]


def test_a_transport_that_takes_it_is_refused_where_the_box_has_no_codec() -> None:
    plain = Box(name="order_outbox_item", type=BoxType.OUTBOX, table="orders")
    message = "transport own takes decoded, but box order_outbox_item has no codec: give its model __payload__"
    with pytest.raises(BoxError, match=message):
        carrier(Single(), box=plain)
    with pytest.raises(Undecodable, match="box order_outbox_item has no codec"):
        _ = make_item(box=plain).decoded


def test_of_a_batch_that_is_used_up_the_answers_keep_their_places() -> None:
    class UsesUp:
        def call_batch(self, items: list[Item], *, decoded: list[Any]) -> list[bool]:
            results = list[bool]()
            while items:
                items.pop()
                results.append(decoded.pop(0) != 4)
            return results

    results = carrier(UsesUp()).send_batch(items(b"{", b"2", b"4"), CLAIM)
    assert [type(results[0]), *results[1:]] == [Failure, True, False]
