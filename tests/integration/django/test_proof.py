"""``make proof-django`` in small: orders in ``atomic()`` blocks, and a worker that is killed."""

from __future__ import annotations

from tests.integration.django.project import DjangoProject
from tests.integration.django.proof import Verdict, play


def test_no_order_is_lost_or_made_up_or_overtaken_when_the_worker_is_killed(fresh: DjangoProject) -> None:
    found = play(fresh, orders=250, kills=1)
    assert found == Verdict(committed=200, lost=0, phantom=0, again=found.again, overtaken=0)
