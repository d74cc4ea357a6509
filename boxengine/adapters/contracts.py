"""Arguments that follow a contract, as msgpack.

The column is JSON, so the bytes stand there as text, beside the contract's id: ``{"contract": 7, "msgpack": "gqR1c2Vy..."}``.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from boxengine.domain.contracts import Contract
from boxengine.errors import BoxError, InvalidItem


class MsgpackArgs:
    """``ArgsCodec`` of one contract."""

    def __init__(self, contract: type[Contract]) -> None:
        """Raises:
        BoxError: msgspec is not installed.
        """
        try:
            from msgspec import msgpack  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise BoxError("contracts need msgspec: pip install 'boxengine[contracts]'") from error
        self._contract = contract
        self._msgpack = msgpack

    def encode(self, args: Any) -> Any:
        """Of an instance of the contract, or of a mapping with its fields."""
        if not isinstance(args, self._contract):
            args = self._contract.from_json(args)
        data = self._msgpack.encode(args.to_wire())
        return {"contract": self._contract.contract_id, "msgpack": base64.b64encode(data).decode()}

    def decode(self, stored: Any) -> Contract:
        """Of what ``encode`` made; also of a mapping, from before the task had a contract."""
        match stored:
            case {"contract": int(contract_id), "msgpack": str(text), **rest} if not rest:
                return self._contract.from_wire(self._fields(contract_id, text))
            case _:
                return self._contract.from_json(stored)

    def _fields(self, contract_id: int, text: str) -> dict[str, Any]:
        name, own = self._contract.__name__, self._contract.contract_id
        if contract_id != own:
            raise InvalidItem(f"expected contract {own} ({name}), got contract {contract_id}")
        try:
            found = self._msgpack.decode(base64.b64decode(text, validate=True))
        except (binascii.Error, ValueError) as error:  # msgspec's errors are ValueErrors
            raise InvalidItem(f"expected msgpack of contract {own} ({name}): {error}") from error
        if not isinstance(found, dict):
            raise InvalidItem(f"expected the fields of contract {own} ({name}), got {type(found).__name__}")
        return found


def readable(stored: Any) -> Any:
    """Arguments as people can read them: the fields of a payload that follows a contract, with bytes as text in base64.

    What follows no contract comes back as it is, and so does a payload that cannot be read, or if msgspec is not installed.
    """
    if not is_encoded(stored):
        return stored
    try:
        from msgspec import msgpack, to_builtins  # noqa: PLC0415 - an extra

        fields = to_builtins(msgpack.decode(base64.b64decode(stored["msgpack"], validate=True)))
    except (ImportError, ValueError):  # binascii's and msgspec's errors are ValueErrors
        return stored
    return {"contract": stored["contract"], **fields} if isinstance(fields, dict) else stored


def is_encoded(stored: Any) -> bool:
    """Whether it is what ``MsgpackArgs`` stores."""
    match stored:
        case {"contract": int(), "msgpack": str(), **rest}:
            return not rest
        case _:
            return False
