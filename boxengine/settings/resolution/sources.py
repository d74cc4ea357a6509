"""Where inbox boxes get their messages from, and how an item's attributes follow from a message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from boxengine.domain.message_template import MessageTemplate
from boxengine.settings.arguments import examined
from boxengine.settings.dotted_paths import load_object
from boxengine.settings.kafka_arguments import kafka_source
from boxengine.settings.origin import Path
from boxengine.settings.resolution.named import Named
from boxengine.settings.schema import Settings
from boxengine.settings.source_rules import shared_topics
from boxengine.settings.transport_names import KAFKA

OURS = frozenset(
    {
        "bucket",
        "created_at",
        "dedup_key",
        "error_log",
        "errors_count",
        "id",
        "options",
        "payload",
        "processed_at",
        "proto_payload",
        "seq",
        "status",
        "updated_at",
        "uuid",
    }
)
"""Columns that no source's ``attributes`` may set."""


class Sources:
    """The Kafka sources of all inbox boxes."""

    def __init__(self, settings: Settings, named: Named, *, checks: Mapping[str, str]) -> None:
        """Args:
        checks: short name -> dotted path of what looks at a source's arguments.
        """
        self._settings = settings
        self._named = named
        self._checks = checks

    def all(self) -> dict[str, dict[str, Any]]:
        """See ``Resolved.sources``."""
        found: dict[str, dict[str, Any]] = {}
        for name, box in self._settings.inbox_items.items():
            if box.source is not None:
                found[name] = kafka_source(box.source.kafka, self._settings.kafka)
                if "bootstrap_servers" not in found[name]:
                    path = ("inbox_items", name, "source", "kafka", "bootstrap_servers")
                    self._named.report(path, "missing: expected here, or in kafka at the top level")
                self._examine(("inbox_items", name, "source", "kafka"), found[name])
                found[name] |= self._message_rules(("inbox_items", name, "source", "kafka"), found[name])
        self._named.found += shared_topics(found)
        return found

    def _examine(self, path: Path, arguments: Mapping[str, Any]) -> None:
        checks = None if KAFKA not in self._checks else load_object(self._checks[KAFKA])
        for argument, message in examined(arguments, checks):
            self._named.report((*path, argument) if argument else path, message)

    def _message_rules(self, path: Path, arguments: dict[str, Any]) -> dict[str, Any]:
        """What the item's attributes are worked out by; takes the keys for it out of the arguments."""
        given: dict[tuple[str, ...], str] = {
            ("attributes", name): text for name, text in arguments.pop("attributes", {}).items()
        }
        for name in ("event_name", "event_key"):
            if name in arguments:
                given[(name,)] = arguments.pop(name)
        rules: dict[str, Callable[[Any], Any]] = {}
        for key, text in given.items():
            here = (*path, *key)
            if key[-1] in OURS:
                self._named.report(here, "is the consumer's to set")
            elif "." in text and "{" not in text:
                rule = self._named.load_callable(here, text, "(message)")
                if rule is not None:
                    rules[key[-1]] = rule
            else:
                try:
                    rules[key[-1]] = MessageTemplate(text)
                except ValueError as error:
                    self._named.report(here, f"{text!r}: {error}")
        return {"attributes": rules} if rules else {}
