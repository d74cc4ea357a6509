"""What ``boxengine init --with`` writes: whole, valid by the tools that read it, and in keeping with the worker."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from boxengine.cli.kits import KITS, content
from boxengine.settings.schema import Settings
from boxengine.web.server import HttpService, Response
from tests import prepared
from tests.conftest import ServerLookup

SECRETS = {"POSTGRES_PASSWORD": "p", "BOXENGINE_CONSOLE_TOKEN": "t" * 40, "GRAFANA_PASSWORD": "g"}


def boxengine(folder: Path, *arguments: str, expect: int = 0, environ: Mapping[str, str] | None = None) -> str:
    """What the command printed, on both outputs."""
    done = prepared.run(["-m", "boxengine", *arguments], cwd=folder, env={**os.environ, **(environ or {})})
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == expect, said
    return said


def check(program: Sequence[str], folder: Path, *, environ: Mapping[str, str] | None = None) -> None:
    env = {**os.environ, **(environ or {})}
    done = subprocess.run(program, cwd=folder, env=env, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With every kit in it."""
    made = tmp_path_factory.mktemp("kits")
    applications = {"fastapi", "django"}  # each in a folder of its own
    boxengine(made, "init", *(word for kit in KITS.keys() - applications for word in ("--with", kit)))
    return made


@pytest.fixture(scope="module")
def compose(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((folder / "compose.yml").read_text())
    return loaded


def test_a_kit_keeps_what_is_there_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "outbox.yml").write_text("# mine\n")
    (tmp_path / "deploy.yml").write_text("# mine\n")
    assert "kept deploy.yml, which exists already" in boxengine(tmp_path, "init", "--with", "systemd")
    assert {(tmp_path / name).read_text() for name in ("outbox.yml", "deploy.yml")} == {"# mine\n"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["boxengine.service", "deploy.yml", "outbox.yml"]
    assert "already there: boxengine.service, deploy.yml; nothing was written" in boxengine(
        tmp_path, "init", "--with", "systemd", expect=1
    )
    assert "got 'helmet'" in boxengine(tmp_path, "init", "--with", "helmet", expect=2)


@pytest.mark.parametrize(
    ("kit", "ports"),
    [
        ("docker", {"probes.port": 5555, "metrics.port": 9090}),
        ("compose", {"probes.port": 5555, "metrics.port": 9090}),
        ("kubernetes", {"probes.port": 5555, "metrics.port": 9090}),
        ("systemd", {"probes.port": 6001, "metrics.port": 6002}),
    ],
)
def test_workers_in_containers_have_the_ports_that_the_kit_asks_and_those_on_hosts_their_own(
    tmp_path: Path, kit: str, ports: dict[str, int]
) -> None:
    (tmp_path / "outbox.yml").write_text(
        "probes: {port: 6001}\nmetrics: {port: 6002}\noutbox_items: {order_outbox_item: {transports: {log: }}}\n"
    )
    boxengine(tmp_path, "init", "--with", kit)
    environ = {"BOXENGINE_CONFIG": "outbox.yml:deploy.yml", "BOXENGINE_CONSOLE_TOKEN": "t" * 40}
    shown = json.loads(boxengine(tmp_path, "config", "show", "--json", environ=environ))
    assert {line["key"]: line["value"] for line in shown if line["key"] in ports} == ports


def test_beside_a_configuration_in_config_no_other_one_is_written(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "outbox.yml").touch()
    told = "These files name outbox.yml: move config/outbox.yml to this folder"
    assert told in boxengine(tmp_path, "init", "--with", "systemd")
    assert "already there: config/outbox.yml; nothing was written" in boxengine(tmp_path, "init", expect=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["boxengine.service", "config", "deploy.yml"]


@pytest.mark.parametrize("application", ["fastapi", "django"])
def test_an_application_gets_its_own_files_whatever_the_order_of_the_options(tmp_path: Path, application: str) -> None:
    boxengine(tmp_path, "init", "--with", "docker", "--with", application)
    own = {target: (tmp_path / target).read_text() == content(source) for target, source in KITS[application].items()}
    assert all(own.values()), own
    assert (tmp_path / "Dockerfile").exists()


def test_every_file_of_every_kit_is_there(folder: Path) -> None:
    targets = {target for name, kit in KITS.items() for target in kit if name not in ("fastapi", "django")}
    assert [target for target in targets if not (folder / target).stat().st_size] == []


def test_the_configuration_that_a_container_gets_is_valid(folder: Path, compose: dict[str, Any]) -> None:
    environ = {name: _filled(value) for name, value in compose["services"]["worker"]["environment"].items()}
    (files,) = re.findall(r"BOXENGINE_CONFIG=(\S+)", (folder / "Dockerfile").read_text())
    environ["BOXENGINE_CONFIG"] = files
    assert "all in order" in boxengine(folder, "config", "check", environ=environ)
    shown = {
        line["key"]: line["value"]
        for line in json.loads(boxengine(folder, "config", "show", "--json", environ=environ))
    }
    assert shown["metrics.enabled"] is True
    assert shown["redis.url"] == "redis://valkey:6379/0"
    assert shown["console.operate_token"] == "***"


def test_compose_names_services_files_and_ports_that_are_there(folder: Path, compose: dict[str, Any]) -> None:
    services: dict[str, Any] = compose["services"]
    assert services.keys() >= {"postgres", "valkey", "kafka", "prometheus", "grafana", "worker", "console"}
    for name, service in services.items():
        for needed, condition in service.get("depends_on", {}).items():
            healthy = condition["condition"] == "service_healthy"
            assert "healthcheck" in services[needed] or not healthy, (name, needed)
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert (folder / source).is_file() if source.startswith(".") else source in compose["volumes"]
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    named = set(re.findall(r"\$\{(\w+)", (folder / "compose.yml").read_text()))
    assert named == set(SECRETS)
    grace = int(services["worker"]["stop_grace_period"].removesuffix("s"))
    assert grace > 180  # processor.general_timeout


WRONG: dict[str, Callable[[dict[str, Any]], None]] = {
    "restarts": lambda services: services["worker"].update(restarts="no"),
    "sometimes": lambda services: services["worker"].update(restart="sometimes"),
    "service_done": lambda services: services["worker"]["depends_on"]["tables"].update(condition="service_done"),
    "stop_grace_period": lambda services: services["worker"].update(stop_grace_period="3 minutes"),
    "retry": lambda services: services["postgres"]["healthcheck"].update(retry=3),
}


def test_the_compose_files_are_what_the_specification_asks_for(
    compose: dict[str, Any], server_lookup: ServerLookup
) -> None:
    server_lookup("compose-spec")
    from compose_spec import PyCompose

    example = yaml.safe_load((Path(__file__).parents[2] / "examples" / "orders" / "compose.yml").read_text())
    for each in (compose, example):
        assert PyCompose.from_yaml(yaml.safe_dump(each)).service_names()
    for misspelt, change in WRONG.items():
        wrong = deepcopy(compose)
        change(wrong["services"])
        with pytest.raises(ValueError, match=misspelt):
            PyCompose.from_yaml(yaml.safe_dump(wrong))


def test_postgresql_counts_as_healthy_only_when_it_takes_connections_over_tcp(compose: dict[str, Any]) -> None:
    """A new volume is filled by a server that listens on its socket alone: the tables would be made too early."""
    asked = compose["services"]["postgres"]["healthcheck"]["test"]
    assert asked[:4] == ["CMD", "pg_isready", "-h", "127.0.0.1"]


def test_the_consumer_of_kafka_starts_only_when_asked_for(compose: dict[str, Any]) -> None:
    services = compose["services"]
    assert (services["consumer"]["command"], services["consumer"]["profiles"]) == (["consume"], ["consumer"])
    assert services["consumer"]["stop_grace_period"] == services["worker"]["stop_grace_period"]
    assert services["consumer"]["environment"]["KAFKA"].partition(":")[0] in services


def test_the_service_of_the_consumer_has_ports_of_its_own(folder: Path, tmp_path: Path) -> None:
    """The page makes it of the worker's unit."""
    page = (Path(__file__).parents[2] / "docs" / "deploying.md").read_text(encoding="utf-8")
    made = re.findall(r"^(?:sed|printf) .*$", page, re.MULTILINE)
    (tmp_path / "boxengine.service").write_text((folder / "boxengine.service").read_text())
    for command in made:
        check(["sh", "-c", command], tmp_path)
    unit = (tmp_path / "boxengine-consume.service").read_text()
    assert "ExecStart=/srv/boxengine/.venv/bin/boxengine consume\n" in unit
    assert "Environment=BOXENGINE_CONFIG=outbox.yml:deploy.yml:consume.yml\n" in unit
    own, settings = yaml.safe_load((tmp_path / "consume.yml").read_text()), Settings()
    assert own.keys() == {"probes", "metrics"}
    assert not {own[name]["port"] for name in own} & {settings.probes.port, settings.metrics.port}


@pytest.mark.parametrize("part", ["A container", "systemd"])
def test_the_page_has_the_tables_made_before_the_worker_starts(part: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "deploying.md").read_text(encoding="utf-8")
    commands = page.partition(f"## {part}\n")[2].split("```")[1].replace("\\\n", " ").strip().splitlines()
    makes = next(number for number, line in enumerate(commands) if line.endswith(" db create"))
    starts = next(number for number, line in enumerate(commands) if re.search(r" worker$|enable --now", line))
    assert makes < starts


def test_prometheus_takes_the_rules_and_finds_every_worker_and_consumer(
    folder: Path, compose: dict[str, Any], server_lookup: ServerLookup
) -> None:
    promtool = server_lookup("promtool").address
    check([promtool, "check", "config", "monitoring/prometheus.yml"], folder)
    check([promtool, "check", "rules", "monitoring/alerts.yml"], folder)
    (job,) = yaml.safe_load((folder / "monitoring/prometheus.yml").read_text())["scrape_configs"]
    (found,) = job["dns_sd_configs"]
    assert found["names"] == ["worker", "consumer"]
    assert compose["services"].keys() >= set(found["names"])
    assert json.loads((folder / "monitoring/grafana-dashboard.json").read_text())["panels"]


def test_systemd_takes_the_unit(folder: Path, tmp_path: Path, server_lookup: ServerLookup) -> None:
    """With a program that is there in place of the one that will be."""
    systemd = server_lookup("systemd-analyze").address
    unit = (folder / "boxengine.service").read_text()
    here = tmp_path / "boxengine.service"
    here.write_text(unit.replace("/srv/boxengine/.venv/bin/boxengine", sys.executable))
    check([systemd, "verify", "--man=no", str(here)], tmp_path)
    here.write_text(
        unit.replace("/srv/boxengine/.venv/bin/boxengine", sys.executable).replace("Restart=always", "Restart=ever")
    )
    done = subprocess.run([systemd, "verify", "--man=no", here], check=False, capture_output=True, text=True)
    assert "restart specifier" in done.stderr  # it does look


def test_the_image_has_stages_an_account_and_a_health_check_that_runs(folder: Path) -> None:
    lines = (folder / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    words = [shlex.split(line) for line in lines if line and not line.startswith("#")]
    assert [each[0] for each in words].count("FROM") == 2
    assert ["USER", "10001"] in words
    assert ["STOPSIGNAL", "SIGTERM"] in words
    code = _health_check(folder)
    dead = subprocess.run([sys.executable, "-c", code.replace("5555", "9")], check=False, capture_output=True)
    assert dead.returncode == 1
    assert b"refused" in dead.stderr
    ignored = (folder / ".dockerignore").read_text().splitlines()
    copied = [word for each in words if each[0] == "COPY" and each[1] != "--from=build" for word in each[1:-1]]
    assert set(copied) == {"requirements.txt", "*.yml", "*.py"}
    assert {"!requirements.txt", "!outbox.yml", "!deploy.yml", "!*.py"} <= set(ignored)


def test_the_health_check_asks_the_worker_and_no_proxy(folder: Path) -> None:
    """Docker gives containers the proxy of the machine, and programs ask it even for 127.0.0.1."""
    worker = HttpService({"/liveness/outbox": lambda _request: Response.json("alive")}, port=0, key="probes.port")
    worker.start()
    try:
        code = _health_check(folder).replace("5555", str(worker.port))
        proxy = {"http_proxy": "http://127.0.0.1:9", "no_proxy": ""}
        check([sys.executable, "-c", code], folder, environ=proxy)
    finally:
        worker.stop()


def test_systemd_leaves_alone_what_the_worker_has_started(folder: Path) -> None:
    """By default it signals all processes of the unit, and ends the unit where one of them runs out of memory."""
    unit = (folder / "boxengine.service").read_text().splitlines()
    assert {"KillMode=mixed", "OOMPolicy=continue"} <= set(unit)


def _health_check(folder: Path) -> str:
    lines = (folder / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    (health,) = (line.partition("CMD ")[2] for line in lines if line.startswith("HEALTHCHECK"))
    program, flag, code = json.loads(health)
    assert (program, flag) == ("python", "-c")
    return str(code)


def _filled(value: str) -> str:
    return re.sub(r"\$\{(\w+)[^}]*\}", lambda found: SECRETS[found[1]], value)
