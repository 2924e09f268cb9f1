import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

import pagoda.tenants.identifiers


class Migration(migrations.Migration):
    dependencies = [
        ("batches", "0003_file_quota"),
        ("tenants", "0002_key_scopes_and_limits"),
    ]

    operations = [
        migrations.CreateModel(
            name="WebhookAttempt",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=pagoda.tenants.identifiers.new_id, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("number", models.PositiveSmallIntegerField(verbose_name="number")),
                ("begun", models.DateTimeField(default=django.utils.timezone.now, verbose_name="begun")),
                ("ended", models.DateTimeField(null=True, verbose_name="ended")),
                ("result", models.CharField(blank=True, max_length=200, verbose_name="result")),
                (
                    "delivery",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="tries", to="batches.webhookdelivery"
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="tenants.tenant"
                    ),
                ),
            ],
            options={
                "verbose_name": "attempt",
                "verbose_name_plural": "attempts",
                "ordering": ("number",),
                "default_manager_name": "objects",
                "constraints": [models.UniqueConstraint(fields=("delivery", "number"), name="attempt_once")],
            },
        ),
    ]
