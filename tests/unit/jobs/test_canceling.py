"""How a worker hears that somebody has asked a job to stop."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from boxengine.engine.jobs.bells import Bells
from boxengine.ports import Signal
from tests.unit.jobs.crew import BOX, Crew


def test_a_request_is_learned_of_with_the_next_turn_and_costs_one_heartbeat() -> None:
    seen: list[tuple[str, bool]] = []

    def handler(job: Any) -> None:
        crew.row().cancel_requested = True
        for name in ("not due", "asked", "once"):
            if name == "asked":
                crew.keeper.hurry()
            before = crew.row().heartbeat_at
            crew.pass_time(0.25)
            crew.keeper.turn()
            seen.append((name, crew.row().heartbeat_at != before))
        assert job.cancelled

    crew = Crew(handler)
    crew.create(lease_ttl=timedelta(hours=1))
    crew.work()
    assert seen == [("not due", False), ("asked", True), ("once", False)]
    assert crew.ends() == ["canceled"]


def test_new_jobs_wake_claimers_and_requests_wake_keepers() -> None:
    bells, heard = Bells(), list[str]()

    def claimer() -> None:
        heard.append("claimer")

    def keeper() -> None:
        heard.append("keeper")

    bells.add(BOX.name, claimer)
    bells.add_for_requests(BOX.name, keeper)
    bells.ring([Signal(BOX.name, None), Signal(BOX.name, None), Signal("another", None, again=True)])
    assert heard == ["claimer"]
    bells.ring([Signal(BOX.name, None, again=True)])
    assert heard == ["claimer", "keeper"]
    bells.remove(BOX.name, keeper)
    bells.remove(BOX.name, claimer)
    bells.ring([Signal(BOX.name, None, again=True), Signal(BOX.name, None)])
    assert heard == ["claimer", "keeper"]
    assert not bells.has(BOX.name)
