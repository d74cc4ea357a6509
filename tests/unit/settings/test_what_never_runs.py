"""Generators, and ``async def`` where nobody awaits it: refused while the configuration is read, with a sentence."""

from __future__ import annotations

import pytest

from boxengine.errors import ConfigurationError
from tests.unit.settings.folder import Folder

SHOP = "tests.unit.settings.shop"
KINDS = {
    "later": "is async def",
    "bit_by_bit": "is a generator (it has yield)",
    "stream": "is an async generator",
    "Later": "is async def",
    "later_with_arguments": "is async def",
    "ready_later": "is async def",
}


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("middlewares: {create_item: [NAME]}", "middlewares.create_item[0]"),
        ("middlewares: {create_batch: [NAME]}", "middlewares.create_batch[0]"),
        ("error_tracker: NAME", "error_tracker"),
        ("outbox_items: {a_item: {partition_strategy: NAME}}", "outbox_items.a_item.partition_strategy"),
        ("outbox_items: {a_item: {retry_strategies: [NAME]}}", "outbox_items.a_item.retry_strategies[0]"),
    ],
)
def test_what_a_plain_call_would_not_run_is_refused_wherever_it_is_named(
    folder: Folder, text: str, path: str, name: str, kind: str
) -> None:
    (message,) = folder.problems(text.replace("NAME", f"{SHOP}.{name}")).values()
    assert f"{SHOP}.{name} {kind}, whose code would never run; write a plain def" in message


AWAITED = [
    "outbox_items: {a_item: {transports: {NAME: }}}",
    "middlewares: {poll: [NAME]}",
    "middlewares: {batch_process: [NAME]}",
    "middlewares: {item_process: [NAME]}",
]


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if "generator" in kind])
@pytest.mark.parametrize("text", AWAITED)
def test_generators_are_refused_where_coroutines_are_awaited(folder: Folder, text: str, name: str) -> None:
    (message,) = folder.problems(text.replace("NAME", f"{SHOP}.{name}")).values()
    assert message.endswith(
        f"{SHOP}.{name} {KINDS[name]}, whose code would never run; write def or async def, without yield"
    )


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if "generator" not in kind])
@pytest.mark.parametrize("text", AWAITED)
def test_coroutines_are_welcome_where_they_are_awaited(folder: Folder, text: str, name: str) -> None:
    assert folder.problems(text.replace("NAME", f"{SHOP}.{name}")) == {}


@pytest.mark.parametrize("name", ["LaterInBatches", "EarlyButLaterInBatches"])
def test_a_transport_may_take_batches_asynchronously(folder: Folder, name: str) -> None:
    assert folder.problems(f"outbox_items: {{a_item: {{transports: {{{SHOP}.{name}: }}}}}}") == {}


def test_both_ways_in_which_a_transport_is_called_are_looked_at(folder: Folder) -> None:
    (message,) = folder.problems(f"outbox_items: {{a_item: {{transports: {{{SHOP}.Streaming: }}}}}}").values()
    assert message.startswith(f"call_batch of {SHOP}.Streaming is ")


def test_the_hooks_of_a_model_are_looked_at(folder: Folder) -> None:
    with pytest.raises(ConfigurationError) as caught:
        folder.resolved(f"outbox_items: {{later_outbox_item: {{model: {SHOP}.LaterOutboxItem}}}}")
    for hook in ("build_payload", "extra_options", "extra_log_details"):
        assert f"its {hook} is async def, whose code would never run; write a plain def" in str(caught.value)


def test_the_hooks_of_a_model_are_called_with_the_item_alone(folder: Folder) -> None:
    with pytest.raises(ConfigurationError) as caught:
        folder.resolved(f"outbox_items: {{bound_outbox_item: {{model: {SHOP}.BoundOutboxItem}}}}")
    advice = "; expected a @staticmethod that takes the item"
    assert (
        f"its extra_options is called as (item), but takes (self, item): missing a required argument: 'item'{advice}"
        in str(caught.value)
    )
    assert f"its extra_log_details is called as (item), but takes (): too many positional arguments{advice}" in str(
        caught.value
    )
    assert "its build_payload is bytes; expected a method of the item" in str(caught.value)


def test_a_plain_function_that_drives_an_event_loop_itself_is_welcome(folder: Folder) -> None:
    assert folder.problems(f"outbox_items: {{a_item: {{transports: {{{SHOP}.Anything: }}}}}}") == {}
