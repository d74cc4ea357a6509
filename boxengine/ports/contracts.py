"""How arguments of a task are stored that are more than JSON."""

from __future__ import annotations

from typing import Any, Protocol


class ArgsCodec(Protocol):
    """Encodes and decodes the arguments of one task."""

    def encode(self, args: Any) -> Any:
        """The arguments as they are stored, as JSON.

        Raises:
            InvalidItem: they are not what the task takes.
        """

    def decode(self, stored: Any) -> Any:
        """The arguments again.

        Raises:
            InvalidItem: these are not arguments of the task.
        """
