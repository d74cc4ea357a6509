"""How a task's arguments are stored if they are not plain JSON."""

from __future__ import annotations

from typing import Any, Protocol


class ArgsCodec(Protocol):
    """Encodes and decodes the arguments of one task."""

    def encode(self, args: Any) -> Any:
        """The arguments as they are stored, as JSON.

        Raises:
            InvalidItem: the task does not take these arguments.
        """

    def decode(self, stored: Any) -> Any:
        """The arguments again.

        Raises:
            InvalidItem: the stored values are not arguments of this task.
        """
