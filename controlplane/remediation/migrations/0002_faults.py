"""A repair is of one fault, in whatever group of alerts people are told of it."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("remediation", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="remediation",
            name="fault",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="remediations", to="alerts.alert"
            ),
        ),
        migrations.RemoveConstraint(model_name="remediation", name="one_remediation_an_incident"),
        migrations.AddConstraint(
            model_name="remediation",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state", "cancelled"), _negated=True),
                fields=("fault",),
                name="one_remediation_a_fault",
            ),
        ),
    ]
