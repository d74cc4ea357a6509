"""Another PostgreSQL takes over: a synchronous standby is promoted, and the address leads to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import psycopg

from boxengine.embedded import EmbeddedPostgres
from tests.chaos.database import PostgreSQL
from tests.chaos.fault import Fault, hire_two_behind_proxies
from tests.chaos.stage import Stage
from tests.servers.standby import promote, standby_of, wait_until_followed

_SYNCHRONOUS = (
    "ALTER SYSTEM SET synchronous_standby_names = '*'",
    "ALTER SYSTEM SET synchronous_commit = 'remote_apply'",
)
_ALONE = ("ALTER SYSTEM RESET synchronous_standby_names", "ALTER SYSTEM RESET synchronous_commit")


def _move_the_address(stage: Stage, standby: EmbeddedPostgres) -> None:
    """VIP: everybody who is connected is cut off."""
    for proxy in (stage.database_proxy, stage.application_proxy):
        proxy.redirect(standby.url())


def _lead_new_ones(stage: Stage, standby: EmbeddedPostgres) -> None:
    """DNS: what is open stays with the old server, which takes no writes any more."""
    for proxy in (stage.database_proxy, stage.application_proxy):
        proxy.lead_new_to(standby.url())
    _configure(stage.servers.postgres, "ALTER SYSTEM SET default_transaction_read_only = on")


def _promotion(lead: Callable[[Stage, EmbeddedPostgres], None]) -> Callable[[Stage], None]:
    def inject(stage: Stage) -> None:
        primary = stage.servers.postgres
        standby = standby_of(primary, stage.folder / f"standby-{len(stage.injections)}")
        if not stage.injections:
            # Last of all, the first primary is there again: it belongs to the whole run.
            stage.cleanup.callback(_give_back, primary)
        stage.cleanup.enter_context(standby)
        _configure(standby, *_ALONE)
        _configure(primary, *_SYNCHRONOUS)
        wait_until_followed(primary, standby)
        stage.wait_for_work()
        with stage.injecting():
            # First the address, then the promotion: for a moment it leads to a server that takes no writes.
            lead(stage, standby)
            stage.pause(0.5, 2.0)
            primary.crash()
            promote(standby)
            stage.servers = replace(stage.servers, database=PostgreSQL(standby))
        stage.wait_for_recovery()

    return inject


def _give_back(primary: EmbeddedPostgres) -> None:
    primary.start()
    _configure(primary, *_ALONE, "ALTER SYSTEM RESET default_transaction_read_only")


def _configure(server: EmbeddedPostgres, *statements: str) -> None:
    options = "-c default_transaction_read_only=off"
    with psycopg.connect(server.url().replace("+psycopg", ""), autocommit=True, options=options) as connection:
        for statement in (*statements, "SELECT pg_reload_conf()"):
            connection.execute(statement.encode())


FAULTS = {
    f"promotion-{name}": Fault(
        inject=_promotion(lead), times=3, least=1, repeats=True, hire=hire_two_behind_proxies, note=note
    )
    for name, lead, note in (
        ("vip", _move_the_address, "the address moves to a standby, which is promoted"),
        ("dns", _lead_new_ones, "new connections reach a standby, which is promoted; old ones stay"),
    )
}
