"""A finding as an alert, where a setting asks for it."""

from __future__ import annotations

from datetime import datetime

from controlplane import settings_rows
from controlplane.alerts.models import Severity
from controlplane.alerts.services.alerts import open_alert, resolve_alert
from controlplane.diagnosis.models import Finding, FindingState
from controlplane.diagnosis.texts import plain

ALERTNAME = "Diagnosis"


def follow(row: Finding, at: datetime) -> None:
    """Open the alert of a stored finding once it is sure enough, and end it with it.

    An alert that is open stays so while the finding stands, whatever its confidence is by then.
    """
    if row.state == FindingState.CLEARED:
        if row.alert is not None:
            resolve_alert(row.alert, at, "its detector sees the place clear")
        return
    least = settings_rows.DIAGNOSIS_ALERT_CONFIDENCE_PERMILLE.read()
    if row.alert is not None or row.state != FindingState.OPEN or not least or row.confidence_permille < least:
        return
    row.alert, _ = open_alert(
        labels=labels_of(row),
        source="rule",
        severity=Severity.WARNING,
        title=plain(row.summary),
        # Its page says what was found and what to do; receivers are told its whole address.
        annotations={"summary": plain(row.summary), "runbook_url": f"diagnosis/findings/{row.pk}/"},
        at=at,
        text=f"found since {row.since:%Y-%m-%d %H:%M:%S} UTC, confidence {row.confidence_permille / 10:g} %",
    )
    row.save(update_fields=["alert"])


def labels_of(row: Finding) -> dict[str, str]:
    labels = {
        "alertname": ALERTNAME,
        "detector": row.detector,
        "subject": row.subject,
        "severity": Severity.WARNING.value,
    }
    return {**labels, **({"pool": row.pools[0]} if len(row.pools) == 1 else {})}
