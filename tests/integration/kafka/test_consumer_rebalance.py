"""Consumers that join and leave while messages flow: nothing is lost, nothing doubled, each key stays in order."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from tests.integration.kafka.conftest import MakeInbox
from tests.integration.kafka.inbox import STEP, Inbox, assert_each_once_in_order, numbered, produce, until

COUNT = 2000


def produce_slowly(inbox: Inbox, done: threading.Event) -> None:
    """In portions, so that rebalances fall between and into them."""
    for start in range(0, COUNT, 100):
        produce(inbox.bootstrap, inbox.topic, numbered(100, start=start))
        done.wait(STEP)


def test_consumers_that_join_and_leave_lose_and_double_nothing(make_inbox: MakeInbox) -> None:
    inbox = make_inbox(batch_size=20)
    never = threading.Event()
    with ThreadPoolExecutor(1) as background, inbox.consuming():
        producing = background.submit(produce_slowly, inbox, never)
        for round_number in range(1, 5):
            seen = inbox.count()
            with inbox.consuming(process=round_number):
                until(lambda seen=seen: inbox.count() > seen + 300 or inbox.count() >= COUNT)  # type: ignore[misc]
        producing.result()
        until(lambda: inbox.count() >= COUNT, said=inbox.count)
        until(lambda: inbox.committed() == COUNT, said=inbox.committed)
    assert_each_once_in_order(inbox.rows(), COUNT)


def test_a_consumer_whose_partitions_were_taken_away_in_its_sleep_doubles_nothing(make_inbox: MakeInbox) -> None:
    """The broker gives the partitions of one that does not poll to another; what it held is known when it is back."""
    inbox = make_inbox(batch_size=50, config={"session.timeout.ms": 6000, "max.poll.interval.ms": 6000})
    produce(inbox.bootstrap, inbox.topic, numbered(500))
    with inbox.engine.connect() as locker, inbox.consuming():
        until(lambda: inbox.count() >= 500)
        # A batch waits for this lock longer than its consumer may be silent.
        locker.exec_driver_sql(f"LOCK TABLE {inbox.box.table} IN EXCLUSIVE MODE")
        produce(inbox.bootstrap, inbox.topic, numbered(500, start=500))
        other = inbox.worker(process=1)
        other.start()
        try:
            until(lambda: waiting(inbox) >= 2, said=lambda: waiting(inbox))
            locker.rollback()
            until(lambda: inbox.count() >= 1000, said=inbox.count)
            until(lambda: inbox.committed() == 1000, said=inbox.committed)
        finally:
            assert other.stop(within=timedelta(seconds=60)) == []
    assert_each_once_in_order(inbox.rows(), 1000)


def waiting(inbox: Inbox) -> int:
    """How many transactions wait for a lock."""
    with inbox.engine.connect() as connection:
        found = connection.exec_driver_sql(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        return int(found.scalar_one())


def test_under_the_protocol_in_which_the_broker_assigns_partitions_two_consumers_store_each_message_once(
    make_inbox: MakeInbox,
) -> None:
    inbox = make_inbox(config={"group.protocol": "consumer"}, batch_size=20)
    produce(inbox.bootstrap, inbox.topic, numbered(500))
    with inbox.consuming():
        until(lambda: inbox.count() >= 100, within=30, said=inbox.count)
        with inbox.consuming(process=1):
            produce(inbox.bootstrap, inbox.topic, numbered(500, start=500))
            until(lambda: inbox.committed() == 1000, within=60, said=inbox.committed)
    assert_each_once_in_order(inbox.rows(), 1000)
