from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("rollouts", "0001_initial")]

    operations: ClassVar = [
        migrations.AddField(model_name="rollout", name="deaf_at", field=models.DateTimeField(null=True)),
    ]
