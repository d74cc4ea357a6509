"""Whatever stands in the file, the answer is settings or a list of problems, never another error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boxengine.errors import ConfigurationError, Problem
from boxengine.settings import Row, explain, load_and_resolve
from boxengine.settings.boxes import InboxSettings
from boxengine.settings.schema import PollerSettings, RedisSettings, Settings
from tests.unit.settings.folder import BUILT_IN

KEYS = sorted(
    {*Settings.model_fields, *InboxSettings.model_fields, *PollerSettings.model_fields, *RedisSettings.model_fields}
    | {"class", "event_name", "log", "kafka", "topics", "config", "a_item", "b/c_item", "test", "x-a", "on"}
)
SIGNS = "0.-:${}<%é \n"
"""Nothing that is the name of a module: reading a configuration imports what it names."""

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(
        ["", "log", "kafka", "P1D", "PT0S", "true", "${X}", "${X:-1}", "1_000", "<%", "a:1", "redis://h", "9" * 400]
    ),
    st.text(alphabet=SIGNS, max_size=5),
    st.dates(),
    st.binary(max_size=3),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(st.sampled_from(KEYS), st.text(alphabet=SIGNS, max_size=3), st.integers()), inner, max_size=4
        ),
    ),
    max_leaves=12,
)
BOXES = st.dictionaries(
    st.sampled_from(["a_item", "b/c_item", "Bad", ""]),
    st.one_of(SCALARS, st.dictionaries(st.sampled_from(sorted(InboxSettings.model_fields)), VALUES, max_size=6)),
    max_size=3,
)
FILES = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(KEYS, VALUES) | {"outbox_items": BOXES, "inbox_items": BOXES},
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=FILES)
def test_any_yaml_is_read_or_refused_with_problems(tmp_path: Path, data: dict[str, Any]) -> None:
    text = yaml.safe_dump(data, allow_unicode=True)
    (tmp_path / "outbox.yml").write_text(text, encoding="utf-8")
    problems: tuple[Problem, ...] = ()
    shown: list[Row] = []
    try:
        shown = explain(
            load_and_resolve(None, env="test", environ={}, cwd=tmp_path, builtin_transports=BUILT_IN).settings
        )
    except ConfigurationError as error:
        problems = error.problems
    assert shown or problems
    assert all(problem.file == "outbox.yml" and problem.message for problem in problems)
