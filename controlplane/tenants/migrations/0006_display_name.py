from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0005_kv_ceiling"),
    ]

    operations = [
        migrations.AddField(
            model_name="tenant",
            name="display_name",
            # Also for a process of before, which goes on until it is replaced.
            field=models.CharField(blank=True, db_default="", default="", max_length=120),
        ),
    ]
