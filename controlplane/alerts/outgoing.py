"""From a delivery's row, or a test of a receiver, to one signed message on its way."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from datetime import datetime

import msgspec

from controlplane import settings_rows
from controlplane.alerts.delivery_plan import Outcome, Reason
from controlplane.alerts.models import Delivery, Incident, IncidentState, Receiver
from controlplane.alerts.services.incidents import fingerprint
from controlplane.alerts.transport import post
from controlplane.alerts.webhook import DELIVERY_HEADER, SIGNATURE_HEADER, Alert, message, signature
from controlplane.core.idle import give_back_connection
from controlplane.core.sealed import unsealed

TEST_LABELS: Mapping[str, str] = {"alertname": "HeadworksTest", "severity": "info"}


def attempt(row: Delivery) -> Outcome:
    """Send a claimed delivery once; its incident and receiver are loaded. No connection is held meanwhile."""
    return _send(row.receiver, alert_of(row.incident, row.status), row.pk)


def send_test(receiver: Receiver, now: datetime) -> Outcome:
    """Send a message that says that it is a test, and asks for nothing."""
    text = f"A test of the receiver {receiver.name}; nothing has happened."
    alert = Alert(TEST_LABELS, {"summary": text}, fingerprint(TEST_LABELS), now, None, _public_url())
    return _send(receiver, alert, uuid.uuid4())


def alert_of(incident: Incident, status: str) -> Alert:
    """The incident as a message of this status shows it, whatever has become of it since."""
    url = _public_url()
    return Alert(
        labels={**incident.labels, "severity": incident.severity},
        annotations={"summary": incident.title, **incident.annotations},
        fingerprint=incident.fingerprint,
        started_at=incident.started_at,
        ended_at=incident.resolved_at if status == IncidentState.RESOLVED else None,
        url=f"{url}/incidents/{incident.pk}" if url else "",
    )


def _public_url() -> str:
    return settings_rows.PUBLIC_URL.read().rstrip("/")


def _send(receiver: Receiver, alert: Alert, delivery_id: uuid.UUID) -> Outcome:
    secret = unsealed(receiver.sealed_secret)
    if secret is None:
        return Outcome(
            Reason.SECRET_UNREADABLE,
            "the signing secret was sealed with another HEADWORKS_FIELD_KEY; restore that key, or rotate the secret",
        )
    body = msgspec.json.encode(message(alert, receiver.name, _public_url()))
    headers = {SIGNATURE_HEADER: signature(secret, body, int(time.time())), DELIVERY_HEADER: str(delivery_id)}
    give_back_connection()
    return post(receiver.url, body, headers)
