from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("core", "0004_kept_answers"),
    ]

    operations = [
        migrations.AddField(
            model_name="apitoken",
            name="last_used_at",
            field=models.DateTimeField(null=True),
        ),
    ]
