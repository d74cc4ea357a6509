from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.settings.folder import Folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An empty folder in which a test writes its configuration."""
    return Folder(tmp_path)
