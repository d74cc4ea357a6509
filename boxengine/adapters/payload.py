"""Codecs of payloads: what ``__payload__`` of a model may be."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from boxengine.domain.json_values import json_refusal

if TYPE_CHECKING:
    from google.protobuf.message import Message

    Proto = TypeVar("Proto", bound=Message)

T = TypeVar("T")


class Payload(Generic[T]):
    """How a model's payloads are written and read.

    ::

        class OrderOutboxItem(OutboxItem[Order], Base):
            __tablename__ = "order_outbox_items"
            __payload__ = Payload.pydantic(Order)

        create_outbox_item(session, OrderOutboxItem, event_key=order.id, payload=order)

    A transport or handler reads it as ``item.decoded``, or takes it as an argument ``decoded``. ``item.payload`` stays the
    stored bytes. Bytes and text that are given as a payload are stored as they are: they count as encoded already.
    """

    def __init__(
        self,
        name: str,
        *,
        encode: Callable[[T], bytes],
        decode: Callable[[bytes], T],
        content_type: str = "application/octet-stream",
        schema: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        """A codec of your own. May be shared by models and threads.

        Args:
            name: for messages, such as ``avro Order``.
            encode: makes bytes of a value; whatever it raises is an ``InvalidItem`` for the caller.
            decode: makes a value of bytes; whatever it raises fails that item, except for ``Unavailable``.
            content_type: media type of the bytes.
            schema: makes the JSON Schema of the bytes, where they are JSON.
        """
        self.name = name
        self.content_type = content_type
        self._encode = encode
        self._decode = decode
        self._schema = schema

    def __repr__(self) -> str:
        return f"Payload({self.name})"

    def encode(self, value: T) -> bytes:
        """The bytes that are stored for a value."""
        return self._encode(value)

    def decode(self, payload: bytes) -> T:
        """The value that stored bytes stand for."""
        return self._decode(payload)

    def schema(self) -> dict[str, Any] | None:
        """The JSON Schema of the payload; None if it is not JSON, or its schema is not known."""
        return None if self._schema is None else self._schema()

    @classmethod
    def bytes(cls) -> Payload[bytes]:
        """The payload as it is: for models whose relatives have another codec."""
        return Payload("bytes", encode=_as_it_is, decode=_as_it_is)

    @classmethod
    def json(cls) -> Payload[Any]:
        """Whatever Python's ``json`` takes: dicts, lists, numbers. NaN and infinities are refused: they are no JSON."""
        return Payload("json", encode=_json_bytes, decode=json.loads, content_type="application/json")

    @classmethod
    def pydantic(cls, model: type[T]) -> Payload[T]:
        """A Pydantic model, or any type that Pydantic validates, as JSON.

        Fields go by their aliases, and what is decoded is validated. An object of a subclass is refused if Pydantic would leave
        out what the subclass adds.
        """
        from pydantic import TypeAdapter  # noqa: PLC0415 - a process that only creates bytes does without

        adapter: TypeAdapter[T] = TypeAdapter(model)

        def encode(value: T) -> Any:
            valid = adapter.validate_python(value)
            encoded = adapter.dump_json(valid, by_alias=True, warnings="error")
            kind = type(valid)
            if kind is not model and (added := _added_fields(kind, model)):
                whole: TypeAdapter[Any] = TypeAdapter(kind)
                if whole.dump_json(valid, by_alias=True) != encoded:
                    raise ValueError(
                        f"{kind.__name__} has fields that {_name(model)} lacks, and they would be left out: {added}; give the "
                        f"codec the classes themselves, such as Payload.pydantic({kind.__name__} | ...)"
                    )
            return encoded

        return Payload(
            f"pydantic {_name(model)}",
            encode=encode,
            decode=adapter.validate_json,
            content_type="application/json",
            schema=lambda: adapter.json_schema(by_alias=True),
        )

    @classmethod
    def msgspec(cls, model: type[T], *, format: Literal["json", "msgpack"] = "json") -> Payload[T]:  # noqa: A002 - msgspec's word
        """A ``msgspec.Struct``, or any type that msgspec decodes, as JSON or MessagePack.

        Raises:
            ValueError: another format.
        """
        if format not in ("json", "msgpack"):
            raise ValueError(f"format={format!r} is not understood; expected json or msgpack")
        import msgspec  # noqa: PLC0415 - optional

        library = msgspec.json if format == "json" else msgspec.msgpack
        encoder, decoder = library.Encoder(), library.Decoder(model)

        def encode(value: T) -> Any:
            # An encoder takes anything; what the receiver's decoder would refuse must not be written.
            encoded = encoder.encode(value)
            decoder.decode(encoded)
            return encoded

        return Payload(
            f"msgspec {_name(model)}",
            encode=encode,
            decode=decoder.decode,
            content_type="application/json" if format == "json" else "application/msgpack",
            schema=(lambda: msgspec.json.schema(model)) if format == "json" else None,
        )

    @classmethod
    def protobuf(cls, message: type[Proto]) -> Payload[Proto]:
        """A generated class of Protocol Buffers, in its binary form.

        Raises:
            TypeError: it is none.
        """
        if not hasattr(message, "DESCRIPTOR"):
            raise TypeError(f"expected a generated message class, got {message!r:.100}")

        def encode(value: Proto) -> Any:
            if not isinstance(value, message):
                raise TypeError(f"expected a {message.__name__}")
            return value.SerializeToString(deterministic=True)

        return Payload(
            f"protobuf {message.DESCRIPTOR.full_name}",
            encode=encode,
            decode=message.FromString,
            content_type="application/protobuf",
        )


def _name(model: Any) -> str:
    return str(getattr(model, "__name__", model))


def _added_fields(kind: type, model: Any) -> str:
    """The fields, by commas, that a subclass has besides the model's; empty if there are none, or it is no subclass."""
    if not (isinstance(model, type) and model in kind.__mro__):
        return ""
    return ", ".join(sorted(_fields(kind) - _fields(model)))


def _fields(kind: type) -> frozenset[str]:
    found: Any = getattr(kind, "model_fields", None) or getattr(kind, "__dataclass_fields__", ())
    return frozenset(found)


def _as_it_is(payload: bytes) -> bytes:
    return payload


def _json_bytes(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeError:
        raise
    except (TypeError, ValueError) as error:
        raise ValueError(json_refusal(value, error)) from None
