"""The body and the signature of a webhook. Pure.

The body is that of Alertmanager's webhook receiver, version 4 (prometheus.io/docs/alerting/latest/configuration,
`webhook_config`), so that whatever takes an Alertmanager's takes ours. Each incident is a group of its own, as with
Alertmanager's `group_by: ['...']`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.core.fields import iso

SIGNATURE_HEADER = "X-Headworks-Signature"
DELIVERY_HEADER = "X-Headworks-Delivery"
VERSION = "4"
# Go's zero time, with which Alertmanager says that an alert has not ended.
NOT_ENDED = "0001-01-01T00:00:00Z"


@dataclass(frozen=True)
class Alert:
    """One incident as the message shows it. `ended_at` is None while it fires; `url` is where people read on."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    fingerprint: str
    started_at: datetime
    ended_at: datetime | None
    url: str

    @property
    def status(self) -> str:
        return "firing" if self.ended_at is None else "resolved"


def message(alert: Alert, receiver: str, external_url: str) -> dict[str, Any]:
    """The whole body, as a document."""
    labels, annotations = dict(sorted(alert.labels.items())), dict(sorted(alert.annotations.items()))
    shown = {
        "status": alert.status,
        "labels": labels,
        "annotations": annotations,
        "startsAt": iso(alert.started_at),
        "endsAt": iso(alert.ended_at) or NOT_ENDED,
        "generatorURL": alert.url,
        "fingerprint": alert.fingerprint,
    }
    return {
        "version": VERSION,
        "groupKey": f"{{}}:{{{_matchers(labels)}}}",
        "truncatedAlerts": 0,
        "status": alert.status,
        "receiver": receiver,
        "groupLabels": labels,
        "commonLabels": labels,
        "commonAnnotations": annotations,
        "externalURL": external_url,
        "alerts": [shown],
    }


def _matchers(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in labels.items())


def signature(secret: str, body: bytes, at_seconds: int) -> str:
    """The header that proves who sent this body and when: HMAC-SHA256 of `t.body` under the receiver's secret."""
    digest = hmac.new(secret.encode(), b"%d.%s" % (at_seconds, body), hashlib.sha256).hexdigest()
    return f"t={at_seconds},v1={digest}"
