"""``contracts.yml``: contracts as a file, and the classes that ``boxengine new contract`` makes of them."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from boxengine.domain.contracts import KINDS, Kind
from boxengine.errors import BoxError

HEADER = '"""Made from {source} by `boxengine new contract`. Change that file, and make this one anew."""\n'
MADE = "by `boxengine new contract`. Change that file, and make this one anew."
"""By which a file is known that may be overwritten."""
_NAME = re.compile(r"[A-Z][A-Za-z0-9]*")
_FIELD = re.compile(r"[a-z][a-z0-9_]*")
_OWN = ("contract_id", "to_wire", "from_wire", "from_json")
_TYPES = {"int": "Int", "int64": "Int64", "string": "str", "bool": "bool", "bytes": "bytes"}
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a contract."""

    name: str
    kind: Kind
    default: Any = _ABSENT

    def line(self) -> str:
        """As it stands in the class."""
        inner = _TYPES[self.kind.name]
        hint = f"tuple[{inner}, ...]" if self.kind.is_list else inner
        return f"{self.name}: {hint}" + ("" if self.default is _ABSENT else f" = {self.default!r}")


@dataclass(frozen=True, slots=True)
class Declared:
    """One contract of a file."""

    id: int
    name: str
    fields: Sequence[Field]


def read(text: str, source: str) -> list[Declared]:
    """The contracts of a file.

    Raises:
        BoxError: with everything that is wrong, a line each.
    """
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BoxError(f"{source}: {' '.join(str(error).split())}") from error
    match document:
        case {"contracts": list(entries)} if len(document) == 1 and entries:
            pass
        case _:
            raise BoxError(f"{source}: expected the key contracts with a list of contracts, and no other key")
    problems: list[str] = []
    found = [each for number, entry in enumerate(entries, start=1) for each in _contract(entry, number, problems)]
    for what in ("id", "name"):
        values = [getattr(each, what) for each in found]
        problems += [
            f"the {what} {value} is used twice" for value in sorted({v for v in values if values.count(v) > 1})
        ]
    if problems:
        raise BoxError("\n".join(f"{source}: {problem}" for problem in problems))
    return found


def module(contracts: Sequence[Declared], source: str) -> str:
    """The text of a Python module with their classes."""
    used = {_TYPES[field.kind.name] for contract in contracts for field in contract.fields} & {"Int", "Int64"}
    lines = [
        HEADER.format(source=source),
        "from dataclasses import dataclass",
        "from typing import ClassVar",
        "",
        f"from boxengine import {', '.join(sorted({'Contract', *used}))}",
    ]
    for contract in contracts:
        lines += [
            "",
            "",
            "@dataclass(frozen=True, kw_only=True)",
            f"class {contract.name}(Contract):",
            f"    contract_id: ClassVar[int] = {contract.id}",
            *(f"    {field.line()}" for field in contract.fields),
        ]
    return "\n".join(lines) + "\n"


def _contract(entry: Any, number: int, problems: list[str]) -> Iterator[Declared]:
    match entry:
        case {"id": int(id_), "name": str(name), "fields": dict(fields), **rest} if not rest and id_ is not True:
            pass
        case _:
            problems.append(f"contract {number}: expected the keys id (a number), name and fields (a mapping)")
            return
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        problems.append(f"contract {number}: expected the name of a class, such as SendMail, got {name!r}")
    found = [each for field, spec in fields.items() for each in _field(name, field, spec, problems)]
    yield Declared(id_, name, found)


def _field(contract: str, name: Any, spec: Any, problems: list[str]) -> Iterator[Field]:
    where = f"{contract}.{name}"
    if not isinstance(name, str) or not _FIELD.fullmatch(name) or keyword.iskeyword(name) or name in _OWN:
        problems.append(f"{where}: expected the name of a field, in lower case with underscores")
        return
    given, default = _spec(spec)
    is_list = isinstance(given, list) and len(given) == 1
    type_name = given[0] if isinstance(given, list) and is_list else given
    if not isinstance(type_name, str) or type_name not in KINDS:
        problems.append(f"{where}: expected {', '.join(KINDS)}, or a list such as [int64]; got {given!r}")
        return
    plain = KINDS[type_name]
    kind = Kind(plain.name, plain.type, plain.bits, is_list=is_list)
    if default is not _ABSENT:
        try:
            default = kind.checked(kind.from_json(default))
        except ValueError as error:
            problems.append(f"{where}: default: {error}")
            return
    yield Field(name, kind, default)


def _spec(spec: Any) -> tuple[Any, Any]:
    """The type and the default."""
    if isinstance(spec, Mapping) and spec.keys() <= {"type", "default"}:
        return spec.get("type"), spec.get("default", _ABSENT)
    return spec, _ABSENT
