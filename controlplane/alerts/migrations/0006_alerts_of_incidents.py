"""Each incident that fires gets its alert, and what its receivers were told."""

from __future__ import annotations

from typing import Any

from django.db import migrations
from django.utils import timezone


def fill(apps: Any, schema_editor: Any) -> None:
    names = ("Incident", "Alert", "Delivery", "LastTold", "RuleSeries", "NodeEvent")
    Incident, Alert, Delivery, LastTold, RuleSeries, NodeEvent = (apps.get_model("alerts", name) for name in names)
    now = timezone.now()
    copied = ("fingerprint", "source", "severity", "title", "labels", "annotations", "started_at")
    for incident in Incident.objects.filter(state="firing").iterator():
        alert = Alert.objects.create(incident=incident, **{name: getattr(incident, name) for name in copied})
        incident.notify_at = now
        incident.save(update_fields=["notify_at"])
        RuleSeries.objects.filter(incident=incident).update(alert=alert)
        NodeEvent.objects.filter(incident=incident).update(alert=alert)
        for delivery in Delivery.objects.filter(incident=incident, status="firing"):
            LastTold.objects.create(
                incident=incident,
                receiver_id=delivery.receiver_id,
                status="firing",
                severity=incident.severity,
                alerts=[alert.pk],
                # Else an upgrade would repeat at once what was told long ago.
                at=now,
            )


class Migration(migrations.Migration):
    dependencies = [("alerts", "0005_kinds_of_receivers")]

    operations = [migrations.RunPython(fill, migrations.RunPython.noop)]
