"""What the module-level functions use inside a worker."""

from __future__ import annotations

import threading

import pytest

from boxengine import Boxes
from boxengine.app.boxes import default as module
from boxengine.app.boxes.default import _Default
from boxengine.engine.delivering.calls.pipeline import Middlewares
from boxengine.settings import Resolved, Settings


def boxes() -> Boxes:
    return Boxes(Resolved(Settings(), {}, Middlewares(), None))


def test_a_workers_offer_is_taken_where_the_application_has_not_chosen() -> None:
    default, offered = _Default(), boxes()
    default.offer(offered)
    assert default.get() is offered


def test_an_applications_own_choice_stays() -> None:
    default, chosen = _Default(), boxes()
    default.set(chosen)
    default.offer(boxes())
    assert default.get() is chosen


def test_a_module_of_the_application_may_choose_while_the_configuration_imports_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    default, chosen, found = _Default(), boxes(), list[Boxes]()

    def load() -> Boxes:
        default.set(chosen)
        return boxes()

    monkeypatch.setattr(module, "load", load)
    thread = threading.Thread(target=lambda: found.append(default.get()), daemon=True)
    thread.start()
    thread.join(10)
    assert found == [chosen]
