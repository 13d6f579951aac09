from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0008_compatibility_rules")]

    operations = [
        migrations.AddField(model_name="modelversion", name="idle_since", field=models.DateTimeField(null=True)),
        migrations.AddField(model_name="modelversion", name="looked_at", field=models.DateTimeField(null=True)),
    ]
