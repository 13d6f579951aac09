from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0010_cuda_version")]

    operations = [
        migrations.AddField(
            model_name="node",
            name="reported_revision",
            field=models.PositiveBigIntegerField(null=True),
        ),
    ]
