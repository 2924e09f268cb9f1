import django.core.validators
import django.db.models.deletion
from django.db import migrations, models

import pagoda.tenants.identifiers


class Migration(migrations.Migration):
    dependencies = [
        ("batches", "0002_webhooks"),
        ("tenants", "0002_key_scopes_and_limits"),
    ]

    operations = [
        migrations.AddField(
            model_name="batch",
            name="output_expires_after",
            field=models.PositiveIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="storedfile",
            name="expires",
            field=models.DateTimeField(null=True, verbose_name="expires"),
        ),
        migrations.CreateModel(
            name="FileQuota",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=pagoda.tenants.identifiers.new_id, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "mib",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="Inputs and outputs of batches. Empty: PAGODA_FILES_QUOTA_MIB. 0: no limit.",
                        null=True,
                        validators=[django.core.validators.MaxValueValidator(2000000000)],
                        verbose_name="files, in MiB",
                    ),
                ),
                (
                    "tenant",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="file_quota", to="tenants.tenant"
                    ),
                ),
            ],
            options={
                "verbose_name": "file quota",
                "verbose_name_plural": "file quotas",
                "default_manager_name": "objects",
            },
        ),
    ]
