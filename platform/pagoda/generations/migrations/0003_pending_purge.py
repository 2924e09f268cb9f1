import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("generations", "0002_token_ids"),
    ]

    operations = [
        migrations.CreateModel(
            name="PendingPurge",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("account", models.CharField(max_length=64)),
                ("lineage", models.CharField(max_length=64)),
                ("engine", models.CharField(max_length=255)),
                ("created", models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                "verbose_name": "pending purge",
                "verbose_name_plural": "pending purges",
                "ordering": ("id",),
                "indexes": [models.Index(fields=["engine", "id"], name="pending_purge_of_engine")],
            },
        ),
    ]
