"""Transports that take ``decoded``: they get the payload as the model's codec reads it, beside the stored bytes.

An item whose payload cannot be read fails by itself, before the transport sees it; the others of its batch go on.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from boxengine.domain.item import Item
from boxengine.domain.outcome import Failure
from boxengine.domain.signatures import signature_of
from boxengine.engine.answers import never_runs
from boxengine.engine.delivering.calls.results import demand_results
from boxengine.errors import Undecodable
from boxengine.ports import Result


def decoding(transport: Any) -> Any:
    """The transport itself, or a wrapper that hands it ``decoded`` if its signature asks for that."""
    batch: Any = getattr(transport, "call_batch", None)
    members: dict[str, Any] = {}
    if takes(transport, "decoded"):
        members["__call__"] = _single(transport)
    if takes(batch, "decoded"):
        members["call_batch"] = _batch(batch)
    if not members:
        return transport
    if "__call__" not in members and callable(transport):
        members["__call__"] = _as_it_is(transport)
    # A class of its own: the engine decides by class and signature how to call a transport.
    return type(type(transport).__name__, (_Decoding,), members)(transport)


def takes(call: Any, name: str) -> bool:
    """Whether the engine should pass this argument: the callable has the parameter, and nobody has bound it yet."""
    return never_runs(call) is None and asks_for(call, name)


def asks_for(call: Any, name: str) -> bool:
    """Whether the callable has the parameter, and nobody has bound it yet; it may be ``async def``, unlike for ``takes``."""
    if not callable(call) or isinstance(call, type):
        return False
    if isinstance(call, functools.partial) and name in call.keywords:
        return False
    if not (inspect.isroutine(call) or isinstance(call, functools.partial)):
        # Of an instance its method: inspect compares what it is given, and a user's __eq__ may answer anything.
        call = type(call).__call__
    try:
        return name in signature_of(call).parameters
    except (TypeError, ValueError):
        return False


class _Decoding:
    """A wrapper around a transport. All attributes but the calls are the transport's own."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def _single(transport: Callable[..., Result]) -> Callable[..., Result]:
    def in_session(_self: object, item: Item, payload: Any, *, session: Any) -> Result:
        return transport(item, payload, decoded=item.decoded, session=session)

    def alone(_self: object, item: Item, payload: Any) -> Result:
        return transport(item, payload, decoded=item.decoded)

    return in_session if takes(transport, "session") else alone


def _batch(call_batch: Callable[..., Sequence[Result]]) -> Callable[..., Sequence[Result]]:
    def in_session(_self: object, items: Sequence[Item], *, session: Any) -> Sequence[Result]:
        return _readable(items, functools.partial(call_batch, session=session))

    def alone(_self: object, items: Sequence[Item]) -> Sequence[Result]:
        return _readable(items, call_batch)

    return in_session if takes(call_batch, "session") else alone


def _as_it_is(transport: Callable[..., Result]) -> Callable[..., Result]:
    def in_session(_self: object, item: Item, payload: Any, *, session: Any) -> Result:
        return transport(item, payload, session=session)

    def alone(_self: object, item: Item, payload: Any) -> Result:
        return transport(item, payload)

    return in_session if takes(transport, "session") else alone


def _readable(items: Sequence[Item], call_batch: Callable[..., Sequence[Result]]) -> Sequence[Result]:
    """The results of all items: the transport's answers, and for items that cannot be decoded the reason."""
    values: list[Any] = []
    failures: dict[int, Failure] = {}
    for place, item in enumerate(items):
        try:
            values.append(item.decoded)
        except Undecodable as error:
            failures[place] = Failure(f"Undecodable: {error}")
    if not failures:
        return call_batch(items, decoded=values)
    readable = [item for place, item in enumerate(items) if place not in failures]
    # Checked here: the caller cannot know that fewer items were given.
    answers = iter(demand_results(call_batch(list(readable), decoded=values), len(readable)) if readable else ())
    return [failures[place] if place in failures else next(answers) for place in range(len(items))]
