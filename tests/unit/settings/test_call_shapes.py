"""Users' code that the engine could not call: refused while the configuration is read, not at the first item."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from boxengine.settings.call_shapes import misfit
from tests.unit.settings.folder import Folder

CODE = """
class Fits:
    def __call__(self, item, payload): ...
class AsksForSession:
    def __call__(self, item, payload, *, session): ...
class TakesAnything:
    def __call__(self, *args, **kwargs): ...
class Static:
    @staticmethod
    def call_batch(items): ...
def function(item, payload): ...

class NoPayload:
    def __call__(self, item): ...
class WithPayloads:
    def call_batch(self, items, payloads): ...
class WithHeaders:
    def __call__(self, item, payload, headers): ...
class NoSelf:
    def __call__(item, payload): ...
class ByName:
    def __call__(self, *, item, payload: bytes = b""): ...
def no_payload(item): ...
def middleware_without_call_next(item): ...
def strategy_without_context(item): ...
def tracker_without_context(error): ...
"""
PROBLEMS = {
    "NoPayload": "__call__ of NAME is called as (item, payload), but takes (item): too many positional arguments",
    "WithPayloads": "call_batch of NAME is called as (items), but takes (items, payloads): "
    "missing a required argument: 'payloads'",
    "WithHeaders": "__call__ of NAME is called as (item, payload), but takes (item, payload, headers): "
    "missing a required argument: 'headers'",
    "NoSelf": "__call__ of NAME is called as (item, payload), but takes (payload): too many positional arguments",
    "ByName": "__call__ of NAME is called as (item, payload), but takes (*, item, payload): too many positional arguments",
    "no_payload": "__call__ of NAME is called as (item, payload), but takes (item): too many positional arguments",
}


@pytest.fixture
def shop(folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    (tmp_path / "shaped_shop.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "shaped_shop", raising=False)
    return folder


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_transport_that_cannot_be_called_is_refused_at_its_key(shop: Folder, name: str) -> None:
    problems = shop.problems(f"outbox_items: {{a_item: {{transports: {{shaped_shop.{name}: }}}}}}")
    (message,) = problems.values()
    assert message == PROBLEMS[name].replace("NAME", f"shaped_shop.{name}")


@pytest.mark.parametrize("name", ["Fits", "AsksForSession", "TakesAnything", "Static", "function"])
def test_a_transport_that_can_be_called_is_taken(shop: Folder, name: str) -> None:
    shop.resolved(f"outbox_items: {{a_item: {{transports: {{shaped_shop.{name}: }}}}}}")


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        (
            "middlewares: {item_process: [shaped_shop.middleware_without_call_next]}",
            "middlewares.item_process[0]",
            "is called as (subject, call_next), but takes (item): too many positional arguments",
        ),
        (
            "outbox_items: {a_item: {retry_strategies: [shaped_shop.strategy_without_context], transports: {log: }}}",
            "outbox_items.a_item.retry_strategies[0]",
            "is called as (item, context), but takes (item): too many positional arguments",
        ),
        (
            "error_tracker: shaped_shop.tracker_without_context",
            "error_tracker",
            "is called as (error_or_message, **context), but takes (error): missing **context",
        ),
    ],
)
def test_middlewares_and_strategies_are_looked_at_too(shop: Folder, text: str, path: str, message: str) -> None:
    ((found, told),) = shop.problems(text).items()
    assert found == path
    assert told.endswith(message)


@pytest.mark.parametrize(
    "call", [print, partial(print, end=""), type("C", (), {"__call__": lambda self, a, b: None})()]
)
def test_what_takes_them_or_shows_no_signature_fits(call: Any) -> None:
    assert misfit(call, "(item, payload)") is None
