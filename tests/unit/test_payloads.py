"""Codecs: what is written is read again, and what does not fit is refused with its reason."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from google.protobuf.wrappers_pb2 import Int64Value, StringValue
from pydantic import BaseModel, Field

from boxengine import Payload
from boxengine.protocols import Codec


class Order(BaseModel):
    id: int
    what: str = Field(alias="name")


class Parcel(Order):
    weight: int


@dataclass
class Line:
    count: int


@dataclass
class Gift(Line):
    wrapped: bool


class Payment(msgspec.Struct):
    account: str
    amount: int = 0


CASES: dict[str, tuple[Payload[Any], Any, bytes | None, str]] = {
    "json": (Payload.json(), {"a": ["é", None, 1.5]}, '{"a":["é",null,1.5]}'.encode(), "application/json"),
    "pydantic": (Payload.pydantic(Order), Order(id=1, name="a"), b'{"id":1,"name":"a"}', "application/json"),
    "dataclass": (Payload.pydantic(Line), Line(3), b'{"count":3}', "application/json"),
    "msgspec": (Payload.msgspec(Payment), Payment("a", 3), b'{"account":"a","amount":3}', "application/json"),
    "msgpack": (Payload.msgspec(Payment, format="msgpack"), Payment("a", 3), None, "application/msgpack"),
    "protobuf": (Payload.protobuf(StringValue), StringValue(value="é"), b"\n\x02\xc3\xa9", "application/protobuf"),
    "bytes": (Payload.bytes(), b"\x00\xff", b"\x00\xff", "application/octet-stream"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_written_is_read_again(name: str) -> None:
    codec, value, stored, content_type = CASES[name]
    encoded = codec.encode(value)
    assert isinstance(encoded, bytes)
    assert encoded == (stored or encoded)
    assert codec.decode(encoded) == value
    assert codec.content_type == content_type
    assert isinstance(codec, Codec)


WRONG: dict[str, tuple[Payload[Any], Any]] = {
    "json": (Payload.json(), object()),
    "NaN": (Payload.json(), math.nan),
    "pydantic": (Payload.pydantic(Order), {"id": "x"}),
    "a field of pydantic": (Payload.pydantic(Order), Order.model_construct(id="x", name="a")),  # type: ignore[call-arg, arg-type]
    "another model": (Payload.pydantic(Order), Line(3)),
    "a subclass of a model": (Payload.pydantic(Order), Parcel(id=1, name="a", weight=3)),
    "a subclass of a dataclass": (Payload.pydantic(Line), Gift(3, wrapped=True)),
    "msgspec": (Payload.msgspec(Payment), Line(3)),
    "a field of msgspec": (Payload.msgspec(Payment), Payment("a", amount="many")),  # type: ignore[arg-type]
    "protobuf": (Payload.protobuf(StringValue), Int64Value(value=3)),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_the_receiver_could_not_read_is_not_written(name: str) -> None:
    codec, value = WRONG[name]
    with pytest.raises(Exception, match=r".+"):
        codec.encode(value)


def test_a_subclass_whose_fields_would_be_left_out_is_refused_with_them_and_written_by_a_union() -> None:
    parcel = Parcel(id=1, name="a", weight=3)
    with pytest.raises(
        ValueError, match="Parcel has fields that Order lacks, and they would be left out: weight; give"
    ):
        Payload.pydantic(Order).encode(parcel)
    codec: Payload[Any] = Payload.pydantic(Parcel | Order)  # type: ignore[arg-type] # mypy has no type for unions
    assert codec.decode(codec.encode(parcel)) == parcel


@pytest.mark.parametrize("name", ["json", "pydantic", "msgspec", "msgpack", "protobuf"])
def test_bytes_that_are_something_else_are_not_read(name: str) -> None:
    with pytest.raises(Exception, match=r".+"):
        CASES[name][0].decode(b"\xff{")


def test_a_codec_of_ones_own_is_two_functions() -> None:
    codec = Payload("reversed", encode=lambda text: text[::-1].encode(), decode=lambda raw: raw.decode()[::-1])
    assert codec.decode(codec.encode("abc")) == "abc"
    assert repr(codec) == "Payload(reversed)"
    assert codec.schema() is None


def test_a_codec_that_cannot_be_is_refused_where_it_is_made() -> None:
    with pytest.raises(ValueError, match="format='JSON' is not understood; expected json or msgpack"):
        Payload.msgspec(Payment, format="JSON")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"expected a generated message class, got <class '.*\.Order'>"):
        Payload.protobuf(Order)  # type: ignore[type-var]


def test_json_has_a_schema_where_a_type_says_so() -> None:
    schema = Payload.pydantic(Order).schema()
    assert schema is not None
    assert schema["required"] == ["id", "name"]
    assert Payload.msgspec(Payment).schema() is not None
    assert Payload.msgspec(Payment, format="msgpack").schema() is None
