"""What ``boxengine init --with`` writes: files that lie in the package under ``boxengine/kits``."""

from __future__ import annotations

from importlib.resources import files

from boxengine import __version__

_MONITORING = {
    f"monitoring/{name}": f"monitoring/{name}"
    for name in (
        "prometheus.yml",
        "alerts.yml",
        "grafana-dashboard.json",
        "grafana-datasource.yml",
        "grafana-folder.yml",
    )
}
_DOCKER = {
    "Dockerfile": "docker/Dockerfile",
    ".dockerignore": "docker/dockerignore",
    "requirements.txt": "docker/requirements.txt",
    "deploy.yml": "deploy.yml",
}
KITS = {
    "compose": {"compose.yml": "compose/compose.yml", **_DOCKER, **_MONITORING},
    "docker": _DOCKER,
    "monitoring": _MONITORING,
    "systemd": {"boxengine.service": "systemd/boxengine.service", "deploy.yml": "deploy.yml"},
}
"""By name: where each file is written, and where it lies in the package."""

NEXT = {
    "compose": "put POSTGRES_PASSWORD, BOXENGINE_CONSOLE_TOKEN and GRAFANA_PASSWORD into .env, then\n"
    "  docker compose up -d        # the console: http://127.0.0.1:5580",
    "docker": "docker build -t worker .",
    "monitoring": "load alerts.yml into Prometheus and import the dashboard into Grafana",
    "systemd": "boxengine.service tells where the files go",
}
"""By name: what to do with it."""


def content(source: str) -> str:
    """The text of a file of a kit, for this version."""
    text = files("boxengine").joinpath("kits", *source.split("/")).read_text(encoding="utf-8")
    return text.replace("{version}", __version__) if source.endswith("requirements.txt") else text
