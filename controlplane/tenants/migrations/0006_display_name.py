from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0005_kv_ceiling"),
    ]

    operations = [
        migrations.AddField(
            model_name="tenant",
            name="display_name",
            field=models.CharField(blank=True, default="", max_length=120),
            preserve_default=False,
        ),
    ]
