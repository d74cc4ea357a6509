"""Every server that the tests know, and where it may come from, best first."""

from __future__ import annotations

from collections.abc import Mapping

from tests.servers.kafka import KafkaFromJars
from tests.servers.kafka_mock import KafkaMock
from tests.servers.mariadb import MariaDBFromSystem
from tests.servers.postgres import PostgresFromWheel
from tests.servers.programs import PythonPackage, SystemProgram
from tests.servers.session import FirstOf, Given, Source
from tests.servers.valkey import ValkeyFromWheel


def sources(environ: Mapping[str, str]) -> dict[str, Source]:
    """Where each server comes from in this environment (CONTRACT 1)."""
    kafka = FirstOf("kafka", [KafkaFromJars(environ), KafkaMock()])
    return {
        "postgres": _given("postgres", "BOXENGINE_TEST_POSTGRES_URL", environ) or PostgresFromWheel(),
        "redis": _given("redis", "BOXENGINE_TEST_REDIS_URL", environ) or ValkeyFromWheel(),
        "mariadb": _given("mariadb", "BOXENGINE_TEST_MYSQL_URL", environ) or MariaDBFromSystem(),
        "pgbouncer": SystemProgram("pgbouncer", package="pgbouncer"),
        "chromium": SystemProgram("chromium", package="chromium"),
        "redis-server": SystemProgram("redis-server", package="redis-server"),
        "promtool": SystemProgram("promtool", package="prometheus"),
        "prometheus": SystemProgram("prometheus", package="prometheus"),
        "systemd-analyze": SystemProgram("systemd-analyze", package="systemd"),
        "helm": PythonPackage("helm", module="helm_python"),
        "kubernetes-schemas": PythonPackage("kubernetes-schemas", module="kubernetes_validate"),
        "compose-spec": PythonPackage("compose-spec", module="compose_spec"),
        "grafana-types": PythonPackage("grafana-types", module="grafana_foundation_sdk"),
        "kafka": _given("kafka", "BOXENGINE_TEST_KAFKA_BOOTSTRAP", environ) or kafka,
    }


def _given(server: str, variable: str, environ: Mapping[str, str]) -> Source | None:
    address = environ.get(variable)
    return Given(server, variable=variable, address=address) if address else None
