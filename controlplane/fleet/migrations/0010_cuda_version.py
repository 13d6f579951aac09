from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def rename_holder(apps: Apps, _schema_editor: BaseDatabaseSchemaEditor | None) -> None:
    """Engines that their nodes hold out: by the former name of it none would be put back."""
    held_out = apps.get_model("fleet", "Engine").objects.filter(held_out_by="its node's pre-stop hook")
    held_out.update(held_out_by="its node, which is about to end it")


class Migration(migrations.Migration):
    dependencies = [("fleet", "0009_version_idle")]

    operations = [
        migrations.AddField(
            model_name="node",
            name="cuda_version",
            field=models.CharField(blank=True, default="", max_length=200),
            preserve_default=False,
        ),
        migrations.RunPython(rename_holder, migrations.RunPython.noop),
    ]
