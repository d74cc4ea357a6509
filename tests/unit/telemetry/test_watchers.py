from __future__ import annotations

from pathlib import Path

import pytest

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.telemetry import families
from boxengine.adapters.telemetry.ledger import Ledger, ProcessLedgers
from boxengine.app.running.watchers import watchers
from boxengine.domain.outcome import Settlement
from boxengine.ports import events
from boxengine.settings import Settings
from tests.unit.telemetry.samples import BOX, item


@pytest.mark.parametrize("shown", [True, False])
def test_a_child_counts_only_what_its_parent_shows_and_always_tells_its_progress(tmp_path: Path, shown: bool) -> None:
    ledgers = ProcessLedgers(tmp_path)
    ledger = Ledger(ledgers.path("1"))
    settings = Settings.model_validate({"metrics": {"enabled": shown}})
    watching = watchers(settings, clock=ManualClock(), partitions=6, ledger=ledger)
    watching.observer.see(events.Settled(BOX, [item(1)], Settlement(delivered=[1]), seconds=0.1))
    watching.health["publish"]("poller-1", 0.0, 60.0)
    kinds = {key[0] for key in ledgers.read()}
    assert "loop" in kinds
    assert (families.SENT.name in kinds) is shown
    assert watching.registry is None
    ledger.close()
