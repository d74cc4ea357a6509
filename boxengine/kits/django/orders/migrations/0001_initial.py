# As `python manage.py makemigrations` writes it.

import django.db.models.functions.datetime
import uuid
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("title", models.CharField(max_length=100)),
            ],
        ),
        migrations.CreateModel(
            name="OrderOutboxItem",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("uuid", models.UUIDField(default=uuid.uuid4, editable=False)),
                ("event_name", models.CharField(blank=True, max_length=255, null=True)),
                ("event_key", models.CharField(max_length=255)),
                ("bucket", models.IntegerField()),
                (
                    "status",
                    models.SmallIntegerField(
                        choices=[(0, "Pending"), (1, "Failed"), (2, "Delivered"), (3, "Discarded")],
                        db_default=0,
                        default=0,
                    ),
                ),
                ("options", models.JSONField(blank=True, null=True)),
                ("payload", models.BinaryField()),
                ("errors_count", models.IntegerField(db_default=0, default=0)),
                ("error_log", models.TextField(blank=True, null=True)),
                ("processed_at", models.DateTimeField(blank=True, null=True)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("updated_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("available_at", models.DateTimeField(blank=True, null=True)),
                ("dedup_key", models.CharField(blank=True, max_length=255, null=True)),
            ],
            options={
                "abstract": False,
            },
        ),
    ]
