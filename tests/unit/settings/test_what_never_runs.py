"""``async def`` and generators, wherever users' code is named: refused while the configuration is read, with a sentence."""

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
        ("outbox_items: {a_item: {transports: {NAME: }}}", 'outbox_items.a_item.transports["NAME"].class'),
        ("middlewares: {create_item: [NAME]}", "middlewares.create_item[0]"),
        ("middlewares: {create_batch: [NAME]}", "middlewares.create_batch[0]"),
        ("middlewares: {poll: [NAME]}", "middlewares.poll[0]"),
        ("middlewares: {batch_process: [NAME]}", "middlewares.batch_process[0]"),
        ("middlewares: {item_process: [NAME]}", "middlewares.item_process[0]"),
        ("error_tracker: NAME", "error_tracker"),
        ("outbox_items: {a_item: {partition_strategy: NAME}}", "outbox_items.a_item.partition_strategy"),
        ("outbox_items: {a_item: {retry_strategies: [NAME]}}", "outbox_items.a_item.retry_strategies[0]"),
    ],
)
def test_what_a_plain_call_would_not_run_is_refused_wherever_it_is_named(
    folder: Folder, text: str, path: str, name: str, kind: str
) -> None:
    (message,) = folder.problems(text.replace("NAME", f"{SHOP}.{name}")).values()
    assert f"{SHOP}.{name} {kind}, whose code nobody would run; write a plain def" in message


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("LaterInBatches", "call_batch"),
        ("EarlyButLaterInBatches", "call_batch"),
        ("Streaming", "call_batch"),
        ("Later", "__call__"),
    ],
)
def test_both_ways_in_which_a_transport_is_called_are_looked_at(folder: Folder, name: str, way: str) -> None:
    (message,) = folder.problems(f"outbox_items: {{a_item: {{transports: {{{SHOP}.{name}: }}}}}}").values()
    assert message.startswith(f"{way} of {SHOP}.{name} is ")


def test_the_hooks_of_a_model_are_looked_at(folder: Folder) -> None:
    with pytest.raises(ConfigurationError) as caught:
        folder.resolved(f"outbox_items: {{later_outbox_item: {{model: {SHOP}.LaterOutboxItem}}}}")
    for hook in ("build_payload", "extra_options", "extra_log_details"):
        assert f"its {hook} is async def, whose code nobody would run; write a plain def" in str(caught.value)


def test_a_plain_function_that_drives_an_event_loop_itself_is_welcome(folder: Folder) -> None:
    assert folder.problems(f"outbox_items: {{a_item: {{transports: {{{SHOP}.Anything: }}}}}}") == {}
