"""Named leases: one holder at a time, for a limited time, freed by nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from boxengine.ports import Duty, LeaseName
from tests.conformance import coordination
from tests.conformance.coordination import TTL, Rig

NAME = LeaseName(Duty.POLLING, "order_outbox_item", 3)
SECOND = timedelta(seconds=1)


@pytest.fixture(params=coordination.NAMES)
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    with coordination.open_rig(request.param, request) as opened:
        yield opened


def test_a_free_lease_is_granted(rig: Rig) -> None:
    assert rig.leases.acquire(NAME, "a", ttl=TTL)


def test_a_held_lease_is_refused(rig: Rig) -> None:
    rig.leases.acquire(NAME, "a", ttl=TTL)
    assert not rig.leases.acquire(NAME, "b", ttl=TTL)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(LeaseName(Duty.POLLING, "заказ/item", 3), id="box"),
        pytest.param(LeaseName(Duty.POLLING, "order_outbox_item", 33), id="partition"),
        pytest.param(LeaseName(Duty.RETENTION, "order_outbox_item", 3), id="duty"),
        pytest.param(LeaseName(Duty.POLLING, "order_outbox_item"), id="whole box"),
    ],
)
def test_leases_of_different_names_do_not_meet(rig: Rig, other: LeaseName) -> None:
    rig.leases.acquire(NAME, "a", ttl=TTL)
    assert rig.leases.acquire(other, "b", ttl=TTL)


def test_a_partition_of_another_number_of_partitions_is_in_nobodys_way(rig: Rig) -> None:
    assert rig.leases.acquire(NAME._replace(of=6), "a", ttl=TTL)
    assert rig.leases.acquire(NAME._replace(of=4), "b", ttl=TTL)
    assert not rig.leases.acquire(NAME._replace(of=6), "c", ttl=TTL)
    rig.leases.release(NAME._replace(of=4), "b")
    assert not rig.leases.acquire(NAME._replace(of=6), "c", ttl=TTL), "b has not freed what a holds"
    rig.leases.release(NAME._replace(of=6), "a")
    assert rig.leases.acquire(NAME._replace(of=6), "c", ttl=TTL)


def test_whoever_does_not_tell_the_number_of_partitions_excludes_all(rig: Rig) -> None:
    assert rig.leases.acquire(NAME, "a", ttl=TTL)
    assert not rig.leases.acquire(NAME._replace(of=6), "b", ttl=TTL)


def test_its_holder_may_acquire_it_again_which_renews_it(rig: Rig) -> None:
    rig.leases.acquire(NAME, "a", ttl=TTL)
    rig.pass_time(TTL - SECOND)
    assert rig.leases.acquire(NAME, "a", ttl=TTL)
    rig.pass_time(TTL - SECOND)
    assert not rig.leases.acquire(NAME, "b", ttl=TTL)


def test_being_refused_does_not_prolong_it(rig: Rig) -> None:
    rig.leases.acquire(NAME, "a", ttl=TTL)
    rig.pass_time(TTL - SECOND)
    assert not rig.leases.acquire(NAME, "b", ttl=TTL)
    rig.pass_time(2 * SECOND)
    assert rig.leases.acquire(NAME, "b", ttl=TTL)


def test_a_released_lease_is_free(rig: Rig) -> None:
    rig.leases.acquire(NAME, "a", ttl=TTL)
    rig.leases.release(NAME, "a")
    assert rig.leases.acquire(NAME, "b", ttl=TTL)


def test_a_foreign_token_releases_nothing(rig: Rig) -> None:
    rig.leases.acquire(NAME, "a", ttl=TTL)
    rig.leases.release(NAME, "b")
    assert not rig.leases.acquire(NAME, "b", ttl=TTL)


def test_a_former_holder_does_not_release_its_heirs_lease(rig: Rig) -> None:
    rig.leases.acquire(NAME, "a", ttl=TTL)
    rig.pass_time(TTL + SECOND)
    assert rig.leases.acquire(NAME, "b", ttl=TTL)
    rig.leases.release(NAME, "a")
    assert not rig.leases.acquire(NAME, "a", ttl=TTL)


def test_releasing_what_nobody_holds_is_harmless(rig: Rig) -> None:
    rig.leases.release(NAME, "a")
    assert rig.leases.acquire(NAME, "b", ttl=TTL)


def test_flushall_frees_every_lease(rig: Rig) -> None:
    rig.leases.acquire(NAME, "a", ttl=TTL)
    rig.flush_all()
    rig.leases.release(NAME, "a")
    assert rig.leases.acquire(NAME, "b", ttl=TTL)


def test_of_many_who_ask_at_once_one_gets_it(rig: Rig) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda token: rig.leases.acquire(NAME, token, ttl=TTL), map(str, range(32))))
    assert answers.count(True) == 1
