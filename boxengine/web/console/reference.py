"""The routes of sbmt-outbox's API, with its paths, field names and answers: they show and set which boxes are polled."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from boxengine.domain.box import Box, BoxType
from boxengine.errors import UnknownBox
from boxengine.web.console import acting
from boxengine.web.console.acting import Polling
from boxengine.web.console.answers import Json
from boxengine.web.console.calls import Call
from boxengine.web.console.parsing import BadInput

_FALSE = frozenset({"false", "f", "0", "off", "no"})
"""The values that Rails treats as false, in lower case."""


def index(call: Call, *, side: BoxType) -> Response:
    """All boxes of a side; ``X-Total-Count`` holds their number."""
    boxes = [box for box in call.site.by_id.values() if box.type is side]
    enabled = call.site.servers.pauses.polling_enabled(boxes)
    shown = [_shown(call, box, decided=enabled.get(box.name)) for box in boxes]
    return Json(shown, headers={"X-Total-Count": str(len(shown))})


def show(call: Call, *, side: BoxType) -> Response:
    """One box."""
    box = _box(call, side)
    return Json(_shown(call, box, decided=_decided(call, box)))


def update(call: Call, *, side: BoxType) -> Response:
    """Sets ``polling_enabled``; it may be wrapped in ``outbox_class`` or ``inbox_class``, as Rails sends it, or not."""
    box, name = _box(call, side), f"{side}_class"
    given = call.sent.get(name, call.sent)
    if not isinstance(given, dict) or "polling_enabled" not in given:
        raise BadInput(f'expected {{"{name}": {{"polling_enabled": true or false}}}}')
    enabled = _flag(given["polling_enabled"])
    acting.decide(call.site, box, Polling.RESUME if enabled else Polling.PAUSE, who=call.who.name)
    return Json(_shown(call, box, decided=enabled))


def destroy(call: Call, *, side: BoxType) -> Response:
    """Forgets the setting; answers with the setting that was in force, or with OK if there was none."""
    box = _box(call, side)
    decided = _decided(call, box)
    if decided is None:
        return Json("OK")
    acting.decide(call.site, box, Polling.FORGET, who=call.who.name)
    return Json(_shown(call, box, decided=decided))


def _box(call: Call, side: BoxType) -> Box:
    box = call.site.box(call.path["box"])
    if box.type is not side:
        raise UnknownBox(
            call.path["box"][:80], [each.url_name for each in call.site.by_id.values() if each.type is side]
        )
    return box


def _decided(call: Call, box: Box) -> bool | None:
    return call.site.servers.pauses.polling_enabled([box]).get(box.name)


def _shown(call: Call, box: Box, *, decided: bool | None) -> dict[str, Any]:
    configured = not call.site.boxes.resolved.settings.polling_auto_disabled
    return {"id": box.url_name, "polling_enabled": configured if decided is None else decided}


def _flag(given: Any) -> bool:
    if isinstance(given, bool):
        return given
    if isinstance(given, str | int):
        return str(given).lower() not in _FALSE
    raise BadInput("polling_enabled: expected true or false")
