"""``storage: log``: what it goes with, and what is refused beside it."""

from __future__ import annotations

import pytest

from boxengine.domain.box import Storage
from tests.unit.settings.folder import Folder

BOX = "outbox_items: {a_item: {transports: {log: }%s}}"


@pytest.mark.parametrize(
    ("key", "expected"),
    [("", Storage.TABLE), (", storage: table", Storage.TABLE), (", storage: log", Storage.LOG)],
)
def test_a_box_has_the_storage_that_the_file_names(folder: Folder, key: str, expected: Storage) -> None:
    assert folder.resolved(BOX % key).pipelines["a_item"].box.storage is expected


def test_another_storage_is_refused_with_what_there_is(folder: Folder) -> None:
    assert "expected table or log" in folder.problems(BOX % ", storage: tape")["outbox_items.a_item.storage"]


@pytest.mark.parametrize(
    ("file", "path", "words"),
    [
        (BOX % ", storage: log, sequence: true", "outbox_items.a_item.sequence", "no place for the numbers"),
        (
            BOX % ", storage: log, retry_strategies: [latest_available]",
            "outbox_items.a_item.retry_strategies",
            "not latest_available with storage: log",
        ),
        (
            BOX % ", storage: log, retry_strategies: [compacted_log]",
            "outbox_items.a_item.retry_strategies",
            "not compacted_log with storage: log",
        ),
        (
            "inbox_items: {a_item: {transports: {log: }, storage: log}}",
            "inbox_items.a_item.storage",
            "for outbox boxes",
        ),
        (
            "database: {url: 'mysql+pymysql://u@h/n'}\n" + BOX % ", storage: log",
            "outbox_items.a_item.storage",
            "log needs PostgreSQL",
        ),
    ],
)
def test_what_a_log_cannot_keep_is_refused_with_the_reason(folder: Folder, file: str, path: str, words: str) -> None:
    problems = folder.problems(file)
    assert list(problems) == [path]
    assert words in problems[path]


def test_a_numbered_model_is_refused(folder: Folder) -> None:
    model = "model: tests.integration.test_sequence.OrderOutboxItem, storage: log"
    problems = folder.problems(f"outbox_items: {{order_outbox_item: {{transports: {{log: }}, {model}}}}}")
    assert list(problems) == ["outbox_items.order_outbox_item.storage"]
