"""Contracts: the arguments of a task, as a class that validates itself.

``boxengine new contract`` makes such classes from a file::

    @dataclass(frozen=True, kw_only=True)
    class SendMail(Contract):
        contract_id: ClassVar[int] = 7
        user: Int64
        subject: str
        tags: tuple[str, ...] = ()
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, NamedTuple, Self, get_args, get_origin, get_type_hints

from boxengine.errors import InvalidItem


@dataclass(frozen=True, slots=True)
class Bits:
    """The size of a signed integer."""

    count: int


Int = Annotated[int, Bits(32)]
"""A signed 32-bit integer."""
Int64 = Annotated[int, Bits(64)]
"""A signed 64-bit integer."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The type of a field."""

    name: str
    """The name in a contracts file."""
    type: type
    bits: int = 0
    is_list: bool = False

    def checked(self, value: Any) -> Any:
        """The value, with a list as a tuple.

        Raises:
            ValueError: it has another type, or is too large.
        """
        if not self.is_list:
            return self._one(value)
        if not isinstance(value, list | tuple):
            raise ValueError(f"expected a list of {self.name}, got {value!r:.80}")  # noqa: TRY004 - like the others
        return tuple(self._one(each) for each in value)

    def empty(self) -> Any:
        """The value for a field that an older payload lacks."""
        return () if self.is_list else self.type()

    def from_json(self, value: Any) -> Any:
        """The value from JSON, where bytes are text in base64."""
        if self.type is not bytes:
            return value
        if isinstance(value, list):
            return [_from_base64(each) for each in value]
        return _from_base64(value)

    def _one(self, value: Any) -> Any:
        if type(value) is not self.type:  # because True is an int
            raise ValueError(f"expected {self.name}, got {value!r:.80}")
        if self.bits and not -(2 ** (self.bits - 1)) <= value < 2 ** (self.bits - 1):
            raise ValueError(f"expected {self.name}, which has {self.bits} bits, got {value}")
        return value


KINDS: Mapping[str, Kind] = {
    "int": Kind("int", int, 32),
    "int64": Kind("int64", int, 64),
    "string": Kind("string", str),
    "bool": Kind("bool", bool),
    "bytes": Kind("bytes", bytes),
}


class Contract:
    """Base class of dataclasses that hold the arguments of a task."""

    contract_id: ClassVar[int]
    """Distinguishes payloads of different contracts."""

    def __post_init__(self) -> None:
        """Checks the fields.

        Raises:
            InvalidItem: a value is not of its field's type.
        """
        for name, kind in kinds(type(self)).items():
            object.__setattr__(self, name, _checked(type(self), name, kind, getattr(self, name)))

    def to_wire(self) -> dict[str, Any]:
        """The fields by name."""
        return {name: getattr(self, name) for name in kinds(type(self))}

    @classmethod
    def from_wire(cls, values: Mapping[str, Any]) -> Self:
        """Reads what an older or newer version of the class has written.

        A missing field gets its default, or the empty value of its type. An unknown field is ignored.
        """
        known = {name: value for name, value in values.items() if name in kinds(cls)}
        missing = {name: kinds(cls)[name].empty() for name in _description(cls).required if name not in known}
        return cls(**missing, **known)

    @classmethod
    def from_json(cls, values: Any) -> Self:
        """Reads what a person or another language has written: a mapping, in which bytes are text in base64.

        Raises:
            InvalidItem: a field is missing, unknown, or of another type.
        """
        if not isinstance(values, Mapping):
            raise InvalidItem(f"expected {cls.__name__}, or a mapping with its fields; got {values!r:.80}")
        found = kinds(cls)
        unknown = sorted(map(str, values.keys() - found.keys()))
        if unknown:
            raise InvalidItem(f"{cls.__name__} has no field {unknown[0]}; known: {', '.join(found)}")
        lacking = [name for name in _description(cls).required if name not in values]
        if lacking:
            raise InvalidItem(f"{cls.__name__}.{lacking[0]} is missing")
        try:
            return cls(**{name: found[name].from_json(value) for name, value in values.items()})
        except (binascii.Error, TypeError, ValueError) as error:
            raise InvalidItem(f"{cls.__name__}: expected bytes as text in base64: {error}") from error


def kinds(contract: type[Contract]) -> Mapping[str, Kind]:
    """The fields of a contract, in order.

    Raises:
        TypeError: it is not a dataclass, or a field has a type that contracts do not support.
    """
    return _description(contract).kinds


def _kind(hint: Any, name: str) -> Kind:
    if get_origin(hint) is tuple and get_args(hint)[1:] == (...,):
        return dataclasses.replace(_kind(get_args(hint)[0], name), is_list=True)
    bits = next((each.count for each in getattr(hint, "__metadata__", ()) if isinstance(each, Bits)), 0)
    plain = get_args(hint)[0] if bits else hint
    for kind in KINDS.values():
        if kind.type is plain and kind.bits == bits:
            return kind
    raise TypeError(
        f"field {name}: expected Int, Int64, str, bool, bytes, or a tuple[..., ...] of one of them, got {hint}"
    )


class _Description(NamedTuple):
    kinds: Mapping[str, Kind]
    required: Sequence[str]
    """Fields without a default."""


def _description(contract: Any) -> _Description:
    """Takes Any, because mypy does not accept a class with its own base as a cache key."""
    return _described(contract)


@cache
def _described(contract: Any) -> _Description:
    hints, fields, missing = (
        get_type_hints(contract, include_extras=True),
        dataclasses.fields(contract),
        dataclasses.MISSING,
    )
    return _Description(
        {field.name: _kind(hints[field.name], field.name) for field in fields},
        [field.name for field in fields if field.default is missing and field.default_factory is missing],
    )


def _checked(contract: type[Contract], name: str, kind: Kind, value: Any) -> Any:
    try:
        return kind.checked(value)
    except ValueError as error:
        raise InvalidItem(f"{contract.__name__}.{name}: {error}") from None


def _from_base64(value: Any) -> Any:
    return base64.b64decode(value, validate=True) if isinstance(value, str) else value
