"""Transports that do as little as possible, for the configurations of the benchmarks."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import BigInteger, LargeBinary, String
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

RECEIVER = 0.02
"""Seconds that a receiver takes for one item."""


class Batches:
    """Takes whole batches and does nothing."""

    def call_batch(self, items: Sequence[Any]) -> list[None]:
        return [None] * len(items)


class Singles:
    """Takes one item at a time and does nothing."""

    def __call__(self, item: Any, payload: Any) -> None: ...


class Waits:
    """Waits in its thread for as long as a receiver takes."""

    def __call__(self, item: Any, payload: Any) -> None:  # noqa: ARG002 - a transport's shape
        time.sleep(RECEIVER)


class Awaits:
    """The same as a coroutine."""

    async def __call__(self, item: Any, payload: Any) -> None:  # noqa: ARG002 - a transport's shape
        await asyncio.sleep(RECEIVER)


class Around:
    """An item middleware that does nothing."""

    def __call__(self, item: Any, call_next: Callable[[], Any]) -> Any:  # noqa: ARG002 - a middleware's shape
        return call_next()


class Told:
    """Takes whole batches and reports to the benchmark, in another process, how many items each had."""

    def __init__(self, *, address: str) -> None:
        """Args:
        address: path of a datagram socket.
        """
        self._address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def call_batch(self, items: Sequence[Any]) -> list[None]:
        self._socket.sendto(f"{len(items)} {time.monotonic_ns()}".encode(), self._address)
        return [None] * len(items)

    def close(self) -> None:
        self._socket.close()


class Base(DeclarativeBase):
    """The business tables of the benchmarks."""


class Payment(Base):
    """What an inbox's handler writes: one row per item."""

    __tablename__ = "payments"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    order_key: Mapped[str] = mapped_column(String(255))
    body: Mapped[bytes] = mapped_column(LargeBinary)


class Book:
    """An inbox's handler: writes a business row in the engine's transaction."""

    def __call__(self, item: Any, payload: Any, *, session: Session) -> None:
        session.add(Payment(order_key=item.event_key, body=payload[:50]))
