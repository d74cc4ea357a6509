"""Imported by the worker before the application's own modules: they may use Django's models."""

import django
from django.apps import apps

if not apps.ready:
    django.setup()
