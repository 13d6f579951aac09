from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0009_version_idle")]

    operations = [
        migrations.AddField(
            model_name="node",
            name="cuda_version",
            field=models.CharField(blank=True, default="", max_length=200),
            preserve_default=False,
        ),
    ]
