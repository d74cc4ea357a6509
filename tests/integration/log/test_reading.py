"""What a claim of a log box gives, and where its settlement leaves the positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import timedelta

import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.connecting.cursors import Cursor
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.log.statements import LogStatements
from boxengine.adapters.sql.making import checks
from boxengine.domain.box import Backoff, StrictOrder
from boxengine.domain.item import Status
from boxengine.domain.outcome import FailedAttempt, Settlement
from boxengine.ports import PlainClaim
from tests.integration.log.bench import Bench


@pytest.fixture
def bench(postgres_url: str) -> Iterator[Bench]:
    bench = Bench(postgres_url)
    yield bench
    bench.engine.dispose()


def test_items_go_out_once_in_order(bench: Bench) -> None:
    ids = [bench.commit() for _ in range(5)]
    assert bench.take() == ids
    assert bench.take() == []
    later = bench.commit()
    assert bench.take() == [later]


def test_a_lower_id_that_commits_later_is_not_skipped(bench: Bench) -> None:
    with bench.engine.begin() as connection:
        late = bench.put(connection)
        early = bench.commit()
        assert bench.take() == [early]
        assert bench.take() == []
    assert bench.take() == [late]
    assert bench.take() == []


def test_a_batch_larger_than_a_claim_goes_out_by_id(bench: Bench) -> None:
    with bench.engine.begin() as first, bench.engine.begin() as second:
        low = [bench.put(first) for _ in range(3)]
        early = [bench.commit() for _ in range(3)]
        assert bench.take() == early
        low += [bench.put(second) for _ in range(3)]
        rest = [bench.commit() for _ in range(4)]
        low += [bench.put(first) for _ in range(3)]
    everything = sorted(low + rest)
    taken: list[int] = []
    newer = bench.commit()
    while ids := bench.take(limit=4):
        taken += ids
    assert taken == [*everything, newer]


def test_a_batch_whose_ids_follow_its_transactions_is_read_once(bench: Bench) -> None:
    """As most are: an application's bulk, or a backlog that nobody wrote to at the same time."""
    statements = bench.store._known.statements(bench.box)
    assert isinstance(statements, LogStatements)
    # It would read the first rows again.
    statements._questions = statements._questions._replace(measured_rows="SELECT 1 / 0")
    with bench.engine.begin() as connection:
        ids = [bench.put(connection) for _ in range(7)]
    ids += [bench.commit() for _ in range(6)]
    assert [bench.take(limit=4) for _ in range(4)] == [ids[:4], ids[4:8], ids[8:12], ids[12:]]


@pytest.fixture
def wide(postgres_url: str) -> Iterator[Bench]:
    bench = Bench(postgres_url, bucket_size=40)
    yield bench
    bench.engine.dispose()


def test_a_claim_of_many_buckets_reads_the_first_of_them_whole(wide: Bench) -> None:
    for bucket in range(39, -1, -1):
        for _ in range(8):
            wide.commit(bucket=bucket)
    with wide.store.claims(wide.box).open(dict.fromkeys((3, 0, *range(4, 40))), 40) as claim:
        assert [item.bucket for item in claim.items] == [6] * 8 + [5] * 8 + [4] * 8 + [3] * 8 + [0] * 8
        assert claim.exhausted == {0, 3, 4, 5, 6}
    with wide.store.claims(wide.box).open(dict.fromkeys((3, 0, *range(4, 40))), 12) as claim:
        assert [item.bucket for item in claim.items] == [5] * 3 + [4] * 3 + [3] * 3 + [0] * 3
        assert claim.exhausted == frozenset()


def test_buckets_to_which_a_claim_has_not_come_lose_nothing(wide: Bench) -> None:
    ids = [wide.commit(bucket=n % 20) for n in range(60)]
    taken: list[int] = []
    while found := wide.take(limit=12, buckets=tuple(range(20))):
        taken += found
    assert sorted(taken) == ids


def test_a_large_bucket_leaves_the_others_their_part_of_each_claim(wide: Bench) -> None:
    with wide.engine.begin() as connection:
        large = [wide.put(connection, bucket=1) for _ in range(30)]
    small = [wide.commit(bucket=bucket) for bucket in (2, 3)]
    buckets = (1, 2, 3)
    assert wide.take(limit=12, buckets=buckets) == [*large[:4], *small]
    later = [wide.commit(bucket=bucket) for bucket in (2, 3)]
    assert wide.take(limit=12, buckets=buckets) == [*large[4:8], *later]


def test_the_last_claim_of_a_batch_tells_whether_anything_follows(bench: Bench) -> None:
    with bench.engine.begin() as connection:
        ids = [bench.put(connection) for _ in range(6)]
    assert bench.take(limit=4) == ids[:4]
    with bench.store.claims(bench.box).open({0: None}, 4) as claim:
        assert [each.id for each in claim.items] == ids[4:]
        assert claim.exhausted == {0}
    later = bench.commit()
    with bench.store.claims(bench.box).open({0: None}, 4) as claim:
        assert claim.exhausted == frozenset()
        assert claim.commit(Settlement(delivered=ids[4:])) is None
    assert bench.take(limit=4) == [later]


def test_failed_items_step_aside(bench: Bench) -> None:
    ids = [bench.commit(key=str(n)) for n in range(3)]
    assert bench.take(fail=(ids[1],)) == ids
    assert bench.side() == [(ids[1], 0, 1)]
    assert bench.take() == []


def test_what_stepped_aside_goes_first_though_there_is_more_of_it_than_a_claim_takes(postgres_url: str) -> None:
    bench = Bench(postgres_url, strict_order=StrictOrder.KEY, backoff=Backoff(minimal=timedelta(hours=1)))
    first, second, third = (bench.commit() for _ in range(3))
    assert bench.take(fail=(first,), send=1) == [first]
    assert bench.take() == []
    assert [row[0] for row in bench.side()] == [first, second, third]
    bench.run("UPDATE order_items SET processed_at = NULL")
    fourth, elsewhere = bench.commit(), bench.commit(bucket=1)
    assert bench.take(limit=3, buckets=(0, 1)) == [first, elsewhere]
    assert bench.take() == [second, third, fourth]
    bench.engine.dispose()


def test_an_item_that_was_not_sent_stays_or_steps_aside_untried(bench: Bench) -> None:
    first, second, third = (bench.commit() for _ in range(3))
    assert bench.take(skip=(first, third)) == [first, second, third]
    assert bench.side() == [(first, 0, 0)]
    assert bench.take() == [first, third]


def test_an_undone_claim_comes_again(bench: Bench) -> None:
    item = bench.commit()
    with bench.store.claims(bench.box).open({0: None}, 10) as claim:
        assert [each.id for each in claim.items] == [item]
    assert bench.take() == [item]


def test_a_bucket_that_somebody_holds_is_refused(bench: Bench) -> None:
    item = bench.commit()
    with bench.store.claims(bench.box).open({0: None}, 10) as claim:
        assert [each.id for each in claim.items] == [item]
        with bench.store.claims(bench.box).open({0: None, 1: None}, 10) as other:
            assert other.refused == {0}
            assert other.items == []


def test_heavy_payloads_are_read_as_far_as_there_is_room(bench: Bench) -> None:
    ids = [bench.commit(payload=bytes([n]) * 600_000) for n in range(4)]
    store = SqlStore(bench.engine, max_batch_bytes=1_300_000)
    taken = []
    while True:
        with store.claims(bench.box).open({0: None}, 10) as claim:
            if not claim.items:
                break
            assert [len(item.payload) for item in claim.items] == [600_000] * len(claim.items)
            assert claim.commit(Settlement(delivered=[item.id for item in claim.items])) is None
            taken.append([item.id for item in claim.items])
    assert taken == [ids[:2], ids[2:]]


def test_a_side_table_that_refuses_a_copy_keeps_its_item_and_no_other(bench: Bench) -> None:
    guilty, other, last = bench.commit(key="bad"), bench.commit(), bench.commit()
    bench.run("ALTER TABLE order_items ADD CONSTRAINT no_bad CHECK (event_key <> 'bad' OR error_log IS NULL)")
    with bench.store.claims(bench.box).open({0: None}, 10) as claim:
        failed = [FailedAttempt(each, Status.PENDING, 1, "broken") for each in (guilty, other)]
        unrecorded = claim.commit(Settlement(delivered=[last], failed=failed))
    assert unrecorded is not None
    assert set(unrecorded.left) == {guilty}
    assert bench.side() == [(guilty, 0, 0), (other, 0, 1)]
    assert bench.take() == [guilty]  # the other one waits out its pause


def test_a_unique_index_that_the_log_has_not_is_told_of_until_it_has_one(bench: Bench) -> None:
    """A model's unique column: the log takes what it would refuse, and the second item that fails stops its bucket."""
    for table in ("order_items", "order_items_log"):
        bench.run(f"ALTER TABLE {table} ADD ref text")
    assert checks.check(bench.engine, [bench.box]) == []
    bench.run("CREATE UNIQUE INDEX one_ref ON order_items (ref) WHERE ref <> ''")
    (finding,) = checks.check(bench.engine, [bench.box])
    assert "table order_items has constraints that its log has not (one_ref): the log takes an item" in finding.message
    bench.run("CREATE UNIQUE INDEX one_ref_of_log ON order_items_log (ref) WHERE ref <> 'none'")
    assert checks.check(bench.engine, [bench.box]) == [finding], "it holds for other rows"
    for of_same_rows in ("", "WHERE ref <> ''"):
        bench.run(f"CREATE UNIQUE INDEX good ON order_items_log (ref) {of_same_rows}")
        assert checks.check(bench.engine, [bench.box]) == []
        bench.run("DROP INDEX good")


def test_a_row_that_cannot_step_aside_keeps_back_its_own_bucket_and_no_other(bench: Bench) -> None:
    """Its order has been deleted, say: a side table may have a foreign key, its log has none."""
    bench.run("CREATE TABLE orders (key text PRIMARY KEY)")
    bench.run("INSERT INTO orders VALUES ('k')")
    bench.run("ALTER TABLE order_items ADD FOREIGN KEY (event_key) REFERENCES orders")
    (finding,) = checks.check(bench.engine, [bench.box])
    assert finding.severity == "warning"
    assert "table order_items has constraints that its log has not (order_items_event_key_fkey)" in finding.message
    guilty, later = bench.commit(key="gone"), bench.commit()
    elsewhere, retried = bench.commit(bucket=1), bench.commit(bucket=1)
    with bench.store.claims(bench.box).open({0: None, 1: None}, 10) as claim:
        failed = [FailedAttempt(each, Status.PENDING, 1, "broken") for each in (guilty, retried)]
        unrecorded = claim.commit(Settlement(delivered=[later, elsewhere], failed=failed))
    assert unrecorded is not None
    assert set(unrecorded.left) == {guilty, later}
    assert "violates foreign key constraint" in unrecorded.left[later]
    assert bench.side() == [(retried, 0, 1)]
    assert bench.take(buckets=(0, 1)) == [guilty, later]


def test_a_settlement_made_anew_moves_no_bucket_that_another_claim_has_by_then(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(postgres_url, strict_order=StrictOrder.KEY)
    parking = bench.commit()
    with bench.store.plain_claims(bench.box).open({0: None}, 10) as claim:
        claim.commit(Settlement(failed=[FailedAttempt(parking, Status.FAILED, 1, "broken")]))
    _parked, sent, guilty = bench.commit(), bench.commit(key="other"), bench.commit(key="bad")
    bench.run("ALTER TABLE order_items ADD CONSTRAINT no_bad CHECK (event_key <> 'bad' OR error_log IS NULL)")
    with ExitStack() as stack:
        hold_again = LogStatements.hold_again

        def after_another(self: LogStatements, cursor: Cursor, buckets: Sequence[int]) -> list[int]:
            monkeypatch.undo()
            claim = stack.enter_context(bench.store.plain_claims(bench.box).open({0: None}, 10))
            others.append(claim)
            return hold_again(self, cursor, buckets)

        others: list[PlainClaim] = []
        monkeypatch.setattr(LogStatements, "hold_again", after_another)
        with bench.store.plain_claims(bench.box).open({0: None}, 10) as claim:
            assert [item.id for item in claim.items] == [sent, guilty]
            refused = FailedAttempt(guilty, Status.PENDING, 1, "broken")
            unrecorded = claim.commit(Settlement(delivered=[sent], failed=[refused]))
        assert unrecorded is not None
        assert unrecorded.left == dict.fromkeys((sent, guilty), "another worker has its bucket")
        (other,) = others
        assert [item.id for item in other.items] == [sent, guilty]
        assert other.commit(Settlement(delivered=[sent, guilty])) is None
    assert bench.take() == []
    bench.engine.dispose()


def test_what_a_handler_wrote_commits_with_the_position_or_not_at_all(bench: Bench) -> None:
    item = bench.commit()
    bench.run("CREATE TABLE effects (item bigint)")
    for committed in (False, True):
        with bench.store.claims(bench.box).open({0: None}, 10) as claim:
            claim.session.execute(sa.text(f"INSERT INTO effects VALUES ({claim.items[0].id})"))
            if committed:
                assert claim.commit(Settlement(delivered=[item])) is None
    assert bench.ask("SELECT item FROM effects") == [(item,)]
    assert bench.take() == []


def test_a_handlers_statements_are_planned_as_on_any_connection(bench: Bench) -> None:
    bench.commit()
    settings = "SELECT current_setting('plan_cache_mode'), current_setting('enable_seqscan'), current_setting('jit')"
    usual = bench.ask(settings)
    with bench.store.claims(bench.box).open({0: 0}, 10) as claim:
        assert [tuple(row) for row in claim.session.execute(sa.text(settings))] == usual
