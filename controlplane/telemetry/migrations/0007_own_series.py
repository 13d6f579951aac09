from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("telemetry", "0006_decision_stages"),
    ]

    operations = [
        migrations.CreateModel(
            name="OwnSeriesTurn",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("taken_ms", models.BigIntegerField(default=0)),
            ],
        ),
    ]
