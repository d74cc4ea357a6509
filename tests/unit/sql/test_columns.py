"""What the columns that differ between databases take."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy.dialects import mysql

from boxengine.adapters.sql.shape.columns import UtcMoment


def test_a_moment_that_is_none_is_told_what_it_should_be() -> None:
    given: Any = "tomorrow"
    with pytest.raises(TypeError, match=r"^expected a datetime, such as datetime.now\(UTC\), not 'tomorrow'$"):
        UtcMoment().process_bind_param(given, mysql.dialect())
