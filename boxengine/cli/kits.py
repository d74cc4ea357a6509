"""The files that ``boxengine init --with`` writes; they are in the package under ``boxengine/kits``."""

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
    "deploy.yml": "docker/deploy.yml",
}
_FASTAPI = (
    "shop.py",
    "test_shop.py",
    "outbox.yml",
    "requirements.txt",
    "alembic.ini",
    "migrations/env.py",
    "migrations/script.py.mako",
    "migrations/versions/0001_orders.py",
)
_DJANGO = (
    "manage.py",
    "requirements.txt",
    "shop/__init__.py",
    "shop/settings.py",
    "orders/__init__.py",
    "orders/models.py",
    "orders/services.py",
    "orders/transports.py",
    "orders/tests.py",
    "orders/migrations/__init__.py",
    "orders/migrations/0001_initial.py",
)
_CHART = (
    "Chart.yaml",
    "values.yaml",
    "values.schema.json",
    "templates/_parts.tpl",
    "templates/NOTES.txt",
    "templates/configuration.yaml",
    "templates/migration.yaml",
    "templates/workers.yaml",
    "templates/console.yaml",
    "templates/disruption.yaml",
    "templates/scaling.yaml",
)
_MANIFESTS = ("worker.yaml", "consumer.yaml", "console.yaml", "migration.yaml", "scaling.yaml")
KITS = {
    "fastapi": {name: f"fastapi/{name}" for name in _FASTAPI},
    "django": {name: f"django/{name}" for name in _DJANGO},
    "compose": {"compose.yml": "compose/compose.yml", **_DOCKER, **_MONITORING},
    "docker": _DOCKER,
    "helm": {"chart/.helmignore": "helm/helmignore", **{f"chart/{name}": f"helm/{name}" for name in _CHART}},
    "kubernetes": {
        "deploy.yml": "docker/deploy.yml",
        **{f"kubernetes/{name}": f"kubernetes/{name}" for name in _MANIFESTS},
    },
    "monitoring": _MONITORING,
    "systemd": {"boxengine.service": "systemd/boxengine.service", "deploy.yml": "deploy.yml"},
}
"""By kit: where each file is written, and where it is in the package. If two kits have a file, an application's
is written, or else the first kit's."""

APPLICATIONS = frozenset({"fastapi", "django"})
"""Kits that bring transports and a configuration of their own."""

NEXT = {
    "fastapi": "pip install -r requirements.txt && pytest; then set DATABASE_URL and REDIS_URL (see `boxengine servers`):\n"
    "  alembic upgrade head\n"
    "  uvicorn --factory shop:build",
    "django": "pip install -r requirements.txt; then set DATABASE_URL and REDIS_URL (see `boxengine servers`):\n"
    "  python manage.py test\n"
    "  python manage.py migrate\n"
    "  python manage.py shell -c \"from orders.services import place_order; place_order('a bicycle')\"\n"
    "  python manage.py boxengine start",
    "compose": "put POSTGRES_PASSWORD, BOXENGINE_CONSOLE_TOKEN and GRAFANA_PASSWORD into .env, then\n"
    "  docker compose up -d        # the console: http://127.0.0.1:5580",
    "docker": "docker build -t worker .",
    "helm": "set image.repository in chart/values.yaml, make the Secret `boxengine`, then\n"
    "  helm upgrade --install boxengine chart --set-file configuration=outbox.yml",
    "kubernetes": "set `image` in kubernetes/*.yaml, and make the Secret and the ConfigMap `boxengine`;\n"
    "  the page Deploying of the documentation has the commands",
    "monitoring": "load alerts.yml into Prometheus and import the dashboard into Grafana",
    "systemd": "boxengine.service tells where the files go",
}
"""By kit: what to do next."""
READING = frozenset({"compose", "docker", "helm", "kubernetes", "systemd"})
"""Kits whose files name ``outbox.yml``, without a folder."""

_WITH_VERSION = ("requirements.txt", "Chart.yaml")


def content(source: str) -> str:
    """The text of a file of a kit, for this version."""
    text = files("boxengine").joinpath("kits", *source.split("/")).read_text(encoding="utf-8")
    return text.replace("{version}", __version__) if source.endswith(_WITH_VERSION) else text
