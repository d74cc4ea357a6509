"""Numbers from creation to the consumer, checked there by the class that the docs show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.looking.audit import SqlAudit
from boxengine.adapters.sql.looking.items import SqlItems
from boxengine.engine.audit.audit import Audit
from boxengine.engine.audit.table import TableAudit
from tests.integration.engine.receivers import BatchReceiver, Receiver
from tests.integration.engine.rig import BOX, Rig

DOCS = Path(__file__).parents[3] / "docs/audit.md"


@pytest.fixture
def checker() -> Any:
    """A ``SequenceChecker`` out of the docs."""
    (source,) = re.findall(r"```python\n(class SequenceChecker:.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert len(source.splitlines()) <= 30
    namespace: dict[str, Any] = {}
    exec(compile(source, str(DOCS), "exec"), namespace)
    return namespace["SequenceChecker"]()


@pytest.fixture(params=["postgres_url", "mysql_url"])
def rig(request: pytest.FixtureRequest, tmp_path: Path, redis_url: str) -> Iterator[Rig]:
    url = request.getfixturevalue(request.param)
    keys: dict[str, Any] = {"sequence": True, "max_retries": 3, "minimal_retry_interval": 0.05}
    keys["retry_strategies"] = ["exponential_backoff"]  # who is late shall arrive all the same
    with Rig(tmp_path, database=url, redis=redis_url, box=keys) as made:
        made.create_tables()
        yield made


def findings(rig: Rig) -> list[tuple[str, int | None]]:
    store = SqlStore(rig.engine)
    table = TableAudit(rig.box(), store=store, items=SqlItems(store), rows=SqlAudit(store))
    return [(str(finding.kind), finding.item) for finding in Audit(table).findings()]


def check_all(checker: Any, receiver: Receiver) -> list[str]:
    """What the checker says about all that arrived, in the order of arrival."""
    said = [checker.check(item.event_key, item.headers) for item in receiver.items]
    return [each for each in said if each is not None]


def test_what_is_created_one_by_one_and_in_batches_arrives_with_numbers_that_leave_nothing_out(
    rig: Rig, checker: Any
) -> None:
    receiver = BatchReceiver()
    rig.carry(receiver)
    for _ in range(3):
        rig.create(*(number % 7 for number in range(60)))
        with rig.engine.begin() as connection:
            rig.boxes.create_outbox_item(connection, BOX, event_key=3, payload=b"{}")
    rig.deliver(183)
    assert check_all(checker, receiver) == []
    assert checker.missing() == {}
    assert checker.last["3"] == 3 * (60 // 7 + 1 + 1)
    assert findings(rig) == []


def test_a_lost_item_is_a_gap_at_the_consumer_and_in_the_table(rig: Rig, checker: Any) -> None:
    receiver = Receiver()
    rig.carry(receiver)
    ids = rig.create(*["7"] * 5)
    rig.execute(f"DELETE FROM {rig.box().table} WHERE id = {ids[2]}")
    rig.deliver(4)
    assert check_all(checker, receiver) == ["gap: 3..3"]
    assert checker.missing() == {"7": [3]}
    assert findings(rig) == [("gap", ids[3])]


def test_an_item_that_fails_first_is_a_gap_that_closes(rig: Rig, checker: Any) -> None:
    receiver = Receiver(lambda item: item.errors_count > 0 or item.seq != 1)
    rig.carry(receiver)
    rig.create("7", "7", "7")
    rig.deliver(4)
    first = receiver.items.pop(0)  # the attempt that failed: the consumer has not got it
    assert first.headers["Sequence-Number"] == "1"
    assert checker.check("7", {"Sequence-Number": "0"}) is None
    assert check_all(checker, receiver) == ["gap: 1..1", "late"]
    assert checker.missing() == {}


def test_a_repetition_is_told_from_what_comes_late(checker: Any) -> None:
    said = [checker.check("7", {"Sequence-Number": str(number)}) for number in (4, 5, 5, 8, 6, 6, 9)]
    assert said == [None, None, "repeated", "gap: 6..7", "late", "repeated", None]
    assert checker.missing() == {"7": [7]}


def test_rows_of_other_writers_have_no_number_and_no_header_and_the_audit_tells_of_them(rig: Rig, checker: Any) -> None:
    receiver = Receiver()
    rig.carry(receiver)
    rig.create("7")
    stranger = rig.insert(event_key="7", bucket=rig.box().partition_strategy("7", rig.box().bucket_size))
    rig.create("7")
    rig.deliver(3)
    assert ["Sequence-Number" in item.headers for item in receiver.items] == [True, False, True]
    assert check_all(checker, receiver) == []
    assert findings(rig) == [("gap", stranger)]
