from __future__ import annotations

from pathlib import Path

from boxengine.adapters.telemetry.ledger import ProcessLedgers
from boxengine.cli.child import Child
from boxengine.cli.signals import StopRequest


def test_a_process_that_is_started_again_keeps_its_place_so_that_it_fences_its_predecessor(tmp_path: Path) -> None:
    ledgers = ProcessLedgers(tmp_path)
    first, later = (Child(ledgers.path(name), StopRequest()) for name in ("2", "2.3"))
    assert first.place == later.place == "2"
