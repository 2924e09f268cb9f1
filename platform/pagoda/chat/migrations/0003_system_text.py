from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("chat", "0002_token_ids"),
    ]

    operations = [
        migrations.AddField(
            model_name="conversation",
            name="system_text",
            field=models.TextField(blank=True, editable=False, default=""),
            preserve_default=False,
        ),
    ]
