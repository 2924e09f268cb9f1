import django.core.validators
from django.db import migrations, models


def made_for_the_size_last_seen(apps, schema_editor):
    pools = apps.get_model("pool", "EnginePool")
    pools.objects.update(quota_blocks=models.F("total_blocks"))


class Migration(migrations.Migration):
    dependencies = [
        ("pool", "0002_weight_bounds"),
    ]

    operations = [
        migrations.AddField(
            model_name="enginepool",
            name="quota_blocks",
            field=models.PositiveIntegerField(default=0),
        ),
        migrations.RunPython(made_for_the_size_last_seen, migrations.RunPython.noop),
        migrations.AddField(
            model_name="enginepool",
            name="scaled",
            field=models.FloatField(default=1.0),
        ),
        migrations.AddField(
            model_name="quota",
            name="host_mib",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="MiB of host memory for what leaves the pool. Empty: no bound of its own. 0: nothing.",
                null=True,
                validators=[django.core.validators.MaxValueValidator(2**30)],
                verbose_name="host cache",
            ),
        ),
        migrations.AddField(
            model_name="quota",
            name="disk_mib",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="MiB of disk for what leaves host memory. Empty: no bound of its own. 0: nothing.",
                null=True,
                validators=[django.core.validators.MaxValueValidator(2**30)],
                verbose_name="disk cache",
            ),
        ),
    ]
