from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("alerts", "0006_alerts_of_incidents")]

    operations = [
        migrations.AlterField(
            model_name="rule",
            name="alertname",
            field=models.CharField(blank=True, max_length=200),
        ),
        migrations.AlterField(
            model_name="rule",
            name="group",
            field=models.CharField(blank=True, max_length=200),
        ),
        migrations.AddField(
            model_name="rule",
            name="took_ms",
            field=models.PositiveIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="ruleseries",
            name="annotations",
            field=models.JSONField(default=dict),
        ),
        migrations.CreateModel(
            name="PackedRule",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("pack", models.CharField(max_length=63)),
                ("name", models.CharField(max_length=63)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("pack", "name"), name="one_row_a_packed_rule"),
                ],
            },
        ),
    ]
