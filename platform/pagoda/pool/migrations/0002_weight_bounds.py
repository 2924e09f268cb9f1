import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("pool", "0001_initial"),
    ]

    operations = [
        migrations.AlterField(
            model_name="quota",
            name="weight",
            field=models.FloatField(
                default=1.0,
                help_text="Share of what is left while tenants compete: 2 gets twice as much as 1.",
                validators=[
                    django.core.validators.MinValueValidator(0.001),
                    django.core.validators.MaxValueValidator(1000),
                ],
                verbose_name="weight",
            ),
        ),
    ]
