"""The codec that turns an object into a payload and back, as a box's model declares it."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Codec(Protocol):
    """How payloads of one box are written and read. ``boxengine.Payload`` makes them."""

    @property
    def name(self) -> str:
        """For messages: ``pydantic Order``."""

    @property
    def content_type(self) -> str:
        """Media type of the encoded payload."""

    def encode(self, value: Any) -> bytes:
        """The bytes to store. Raises whatever the library raises for an unsuitable value."""

    def decode(self, payload: bytes) -> Any:
        """The object again. Raises whatever the library raises for bytes that it cannot read."""

    def schema(self) -> dict[str, Any] | None:
        """JSON Schema of what ``decode`` reads; None if there is none."""
