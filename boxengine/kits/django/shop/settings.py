import os

from sqlalchemy.engine import make_url

SECRET_KEY = os.environ.get("SECRET_KEY", "for development only")
DEBUG = "SECRET_KEY" not in os.environ
ALLOWED_HOSTS = ["*"] if DEBUG else os.environ["ALLOWED_HOSTS"].split(",")
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["boxengine.integrations.django", "orders"]

# `boxengine servers` prints both addresses.
_database = make_url(os.environ.get("DATABASE_URL", "postgresql://postgres@127.0.0.1/postgres"))
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _database.database,
        "USER": _database.username,
        "PASSWORD": _database.password or "",
        "HOST": _database.host,
        "PORT": _database.port or 5432,
    }
}
BOXENGINE = {
    "redis": {"url": os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0")},
    "outbox_items": {
        "order_outbox_item": {
            "max_retries": 5,
            "strict_order": "key",  # an item that fails holds back its own key, and nothing else
            "transports": {"orders.transports.Announce": {}},
        },
    },
}
