"""``db create`` and ``db check`` by an account that owns no table. Where nothing is missing, it needs no more rights."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import make_url

from tests.cli.project import Project

TABLES = """
    strict_order: key
    sequence: true
    key_index: true
inbox_items:
  payment_inbox_item:
    transports: {log: {}}
    strict_order: bucket
"""
LOG = """
  shipment_outbox_item:
    transports: {log: {}}
    storage: log
    log_partitions: P1D
"""
JOBS = """
job_items:
  report_job:
    tasks: {report: json.dumps}
"""


@pytest.mark.parametrize("server", ["postgres_url", "mysql_url"])
def test_db_create_finds_nothing_to_do_where_the_owner_has_made_everything(
    tmp_path: Path, redis_url: str, server: str, request: pytest.FixtureRequest
) -> None:
    url = make_url(request.getfixturevalue(server))
    postgres = server == "postgres_url"
    outbox, _, inbox = TABLES.partition("inbox_items:")
    more = f"{outbox}{LOG if postgres else ''}inbox_items:{inbox}{JOBS}"
    (tmp_path / "owner").mkdir()
    owner = Project(tmp_path / "owner", database=url.render_as_string(hide_password=False), redis=redis_url, more=more)
    made = owner.call("db", "create")
    role = f"reader_{url.database}"[:30]
    account = role if postgres else f"'{role}'@'%%'"
    owner.execute(
        f"CREATE ROLE {role} LOGIN" if postgres else f"CREATE USER {account}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}"
        if postgres
        else f"GRANT SELECT ON {url.database}.* TO {account}",
    )
    try:
        mine = url.set(username=role).render_as_string(hide_password=False)
        reader = Project(tmp_path, database=mine, redis=redis_url, more=more)
        assert reader.call("db", "create") == owner.call("db", "create") != made
        assert reader.errors == ""
        reader.call("db", "check")
    finally:
        owner.execute(*([f"DROP OWNED BY {role}", f"DROP ROLE {role}"] if postgres else [f"DROP USER {account}"]))
