from __future__ import annotations

from pathlib import Path

from boxengine.adapters.telemetry.ledger import ProcessLedgers
from boxengine.cli.start import place


def test_a_process_that_is_started_again_keeps_its_place_so_that_it_fences_its_predecessor(tmp_path: Path) -> None:
    ledgers = ProcessLedgers(tmp_path)
    assert place(ledgers.path("2")) == place(ledgers.path("2.3")) == "2"
    assert place(None) == "0"
