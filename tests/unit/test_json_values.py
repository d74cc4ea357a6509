"""What JSON can hold, in Python as well as in the databases."""

from __future__ import annotations

import dataclasses
import enum
import json
import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pydantic
import pytest
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from boxengine import Payload
from boxengine.domain.json_values import json_text


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize(
    "value",
    [
        None,
        {"a": [1, 2.5, True, None]},
        "snow \u2603, a pair \U0001f600",
        r"a backslash and what follows: \u0000 \ud800 \\u0000 \\\ud800",
        "\U0001f600\U0001f600 \\ \U0001f600",
    ],
)
def test_what_json_and_the_databases_hold_goes_through(value: object) -> None:
    assert json.loads(json_text(value)) == value


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (nested(100_000), "nested too deeply"),
        ("a\0b", "NUL"),
        ({"key \0": 1}, "NUL"),
        ("\\\0", "NUL"),
        ("\udc80", "half a surrogate"),
        (chr(0xDE00) + chr(0xD83D), "half a surrogate"),  # the wrong way around
        ("\U0001f600\ud83d", "half a surrogate"),
        ("\\\udc80", "half a surrogate"),
    ],
)
def test_what_either_of_them_cannot_hold_is_refused_with_the_reason(value: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        json_text(value)


@dataclasses.dataclass
class Price:
    cents: int


class Colour(enum.Enum):
    RED = 1


class Order(pydantic.BaseModel):
    id: int


class Base(DeclarativeBase):
    pass


class Row(Base):
    __tablename__ = "rows"
    id: Mapped[int] = mapped_column(primary_key=True)


class Other:
    pass


async def coroutine() -> None: ...


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (Price(1), "it is of type Price; give dataclasses.asdict(value)"),
        ({"rows": [1, {"at": datetime.now(UTC)}]}, "['rows'][1]['at'] is of type datetime; give value.isoformat()"),
        ([timedelta(1)], "[0] is of type timedelta; give value.total_seconds()"),
        (("a", Decimal("1.5")), "[1] is of type Decimal; give str(value)"),
        (uuid.uuid4(), "it is of type UUID; give str(value)"),
        (Path("a"), "Path; give str(value)"),
        (Colour.RED, "it is of type Colour; give value.value"),
        (b"a", "it is of type bytes; give base64.b64encode(value).decode()"),
        ({1, 2}, "it is of type set; give sorted(value)"),
        ({}.values(), "it is of type dict_values; give list(value)"),
        (MappingProxyType({}), "it is of type mappingproxy; give dict(value)"),
        (Order(id=1), 'it is of type Order; give value.model_dump(mode="json")'),
        (Row(id=1), "it is of type Row; give its primary key"),
        (Other(), "it is of type Other; give what it consists of"),
        (Other, "it is of type type; give its name"),
        (ValueError("no"), "it is of type ValueError; give str(value)"),
        ({"a": float("nan")}, "['a'] is nan, which is no number in JSON"),
        ({"a": {(1, 2): 3}}, "a key of ['a'] is of type tuple; keys are texts"),
        ({b"a": 3}, "a key of the dict is of type bytes; keys are texts"),
    ],
)
def test_a_refusal_names_the_part_its_type_and_what_to_give_instead(value: object, says: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the text is compared below
        json_text(value)
    assert says in str(refused.value)


def test_a_coroutine_is_to_be_awaited() -> None:
    forgotten = coroutine()
    with pytest.raises(ValueError, match=r"\['n'\] is of type coroutine; give what it returns: write await before it"):
        json_text({"n": forgotten})
    forgotten.close()


def test_a_value_that_contains_itself_is_refused() -> None:
    around: list[Any] = [1]
    around.append(around)
    with pytest.raises(ValueError, match="Circular"):
        json_text(around)


def test_a_json_payload_is_refused_with_the_same_advice() -> None:
    with pytest.raises(ValueError, match=r"\['total'\] is of type Decimal; give str\(value\)"):
        Payload.json().encode({"total": Decimal(1)})
