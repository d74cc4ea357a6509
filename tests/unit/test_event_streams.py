"""What the console's streams draw and keep."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from boxengine.web.console import events
from boxengine.web.console.events import Events


class _Look:
    """One that can be referred to weakly."""


def _draws(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    drawn: list[str] = []

    def fragment(_call: Any, template: str, **_context: Any) -> str:
        drawn.append(template)
        return f"<p>{len(drawn)}</p>"

    monkeypatch.setattr(events, "fragment", fragment)
    return drawn


def _event(streams: Events, look: _Look, page: str) -> str:
    call: Any = SimpleNamespace(url=lambda path: path, may_operate=True)
    shown: Any = look
    return streams._event(call, shown, page, None)


def test_a_page_is_drawn_once_for_all_tabs_that_show_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, streams, look = _draws(monkeypatch), Events(None), _Look()  # type: ignore[arg-type]
    first = _event(streams, look, "overview")
    assert _event(streams, look, "workers") != first
    assert _event(streams, look, "overview") == first
    assert drawn == ["_overview.html", "_workers.html"]
    assert _event(streams, _Look(), "overview") != first


def test_a_page_whose_last_tab_has_closed_keeps_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    _draws(monkeypatch)
    streams, look = Events(None), _Look()  # type: ignore[arg-type]
    known = weakref.ref(look)
    _event(streams, look, "overview")
    del look
    _event(streams, _Look(), "workers")
    assert known() is None
