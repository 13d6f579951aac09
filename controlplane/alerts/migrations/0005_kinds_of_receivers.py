from django.db import migrations, models


def _number_ends(apps, schema_editor):
    """Until now a receiver had two messages about an incident at most."""
    delivery = apps.get_model("alerts", "Delivery")
    delivery.objects.filter(status="resolved").update(number=2, occasion="resolved")


class Migration(migrations.Migration):
    dependencies = [
        ("alerts", "0004_groups"),
    ]

    operations = [
        migrations.AddField(
            model_name="receiver",
            name="bucket_full_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="receiver",
            name="last_error",
            field=models.CharField(blank=True, max_length=500),
        ),
        migrations.AddField(
            model_name="receiver",
            name="last_taken_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AlterField(
            model_name="delivery",
            name="occasion",
            field=models.CharField(
                choices=[
                    ("first", "first"),
                    ("changed", "changed"),
                    ("repeat", "repeat"),
                    ("acknowledged", "acknowledged"),
                    ("resolved", "resolved"),
                ],
                default="first",
                max_length=16,
            ),
        ),
        migrations.AlterField(
            model_name="delivery",
            name="state",
            field=models.CharField(
                choices=[
                    ("waiting", "waiting"),
                    ("delivered", "delivered"),
                    ("failed", "failed"),
                    ("overtaken", "overtaken"),
                ],
                default="waiting",
                max_length=16,
            ),
        ),
        migrations.RemoveConstraint(
            model_name="delivery",
            name="one_delivery_a_status",
        ),
        migrations.RunPython(_number_ends, migrations.RunPython.noop),
        migrations.AddConstraint(
            model_name="delivery",
            constraint=models.UniqueConstraint(fields=("incident", "receiver", "number"), name="one_delivery_a_number"),
        ),
    ]
