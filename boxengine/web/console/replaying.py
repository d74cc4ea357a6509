"""The options of a replay, as pages and the API send them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boxengine.domain.box import Box
from boxengine.domain.masking import masked
from boxengine.engine import replaying
from boxengine.ports import Copying, Overtaking, Replay
from boxengine.web.console import parsing
from boxengine.web.console.parsing import BadInput
from boxengine.web.console.site import Site

NAMES = ("transport", "event_name", "options", "same_key", "overtake")
MOST_OPTIONS = 20
AS_IT_WAS = Copying()


def from_object(site: Site, box: Box, given: Any) -> Replay:
    """Parses the API's ``replay`` field; if it is left out, copies are like their originals.

    Raises:
        BadInput: it is not understood, or contradicts itself.
    """
    if given is None:
        return AS_IT_WAS
    if not isinstance(given, dict):
        raise BadInput("replay: expected an object")
    parsing.known_only(given, NAMES)
    return _made(site, box, given, _options(given.get("options")))


def from_form(site: Site, box: Box, sent: Mapping[str, Any]) -> Replay:
    """Parses the same options from the confirmation page's form, where ``option`` is a line of ``NAME=VALUE``."""
    line = parsing.text_of("option", sent.get("option")) or ""
    name, equals, value = line.partition("=")
    if line and not (name.strip() and equals):
        raise BadInput("option: expected NAME=VALUE")
    # In the form, event_name is the filter that chooses the items.
    fields = {**sent, "event_name": sent.get("new_event_name")}
    return _made(site, box, fields, {name.strip(): value.strip()} if line else {})


def targets(site: Site, box: Box) -> list[str]:
    """The transports that a replay can choose: those whose name no other has."""
    names = _transports(site, box)
    return [name for name in names if names.count(name) == 1]


def in_words(how: Replay) -> str:
    """The options worth noting in the trail; the text begins with a comma, or is empty."""
    parts = [f"to {how.transport} alone"] if how.transport else []
    if isinstance(how, Copying):
        parts += [f"as event {how.event_name}"] if how.event_name else []
        parts += [f"with {name}={masked((name,), value)}" for name, value in how.options.items()]
    parts += ["with their Idempotency-Key"] if how.same_identity else []
    parts += ["before live items of their keys"] if isinstance(how, Overtaking) else []
    return "".join(f", {part}" for part in parts)


def _transports(site: Site, box: Box) -> list[str]:
    return [each.name for each in site.boxes.pipeline(box.name).transports]


def _made(site: Site, box: Box, given: Mapping[str, Any], options: Mapping[str, str]) -> Replay:
    try:
        return replaying.chosen(
            transports=_transports(site, box),
            transport=parsing.text_of("transport", given.get("transport")),
            event_name=parsing.text_of("event_name", given.get("event_name")),
            options=options,
            same_identity=parsing.flag_of("same_key", given.get("same_key")),
            overtaking=parsing.flag_of("overtake", given.get("overtake")),
        )
    except replaying.Contradiction as error:
        raise BadInput(str(error)) from error


def _options(given: Any) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, dict) or len(given) > MOST_OPTIONS:
        raise BadInput(f"options: expected an object of at most {MOST_OPTIONS} texts")
    return {
        parsing.text_of("options", name) or "": parsing.text_of("options", value) or "" for name, value in given.items()
    }
