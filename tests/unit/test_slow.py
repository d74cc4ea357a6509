"""Which tests ``make test`` leaves out."""

from __future__ import annotations

import pytest

from tests.slow import outdated_lines, slow_ones

WHEEL = "tests/deployment/test_wheel.py::test_the_demo_runs"


@pytest.mark.parametrize("group", ["", "@wheel"])
def test_a_test_of_a_file_that_is_named_is_slow_whatever_its_group(group: str) -> None:
    assert slow_ones([WHEEL + group, "tests/deployment/test_kits.py::test_a"]) == {WHEEL + group}


def test_of_a_test_whose_variant_is_named_the_others_are_not_slow() -> None:
    followers = "tests/cli/test_items.py::test_under_strict_order_by_key_the_followers_of_a_parked_key_go_on_in_order"
    assert slow_ones([f"{followers}[retry]", f"{followers}[delete]"]) == {f"{followers}[delete]"}


def test_mariadbs_half_is_slow_only_where_postgresqls_half_is_among_the_tests() -> None:
    both = {f"tests/engine/test_a.py::test_b[x-{database}]" for database in ("postgresql", "mariadb")}
    engine = [each.replace("engine", "integration/engine") for each in sorted(both)]
    alone = "tests/integration/engine/test_a.py::test_c[mariadb]"
    assert slow_ones([*both, *engine, alone]) == {engine[0]}


def test_a_line_that_names_no_test_is_told() -> None:
    lines = outdated_lines([WHEEL])
    assert lines
    assert WHEEL not in lines
