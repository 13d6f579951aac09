"""Kind `webhook`: the JSON that Alertmanager posts, version 4, signed.

Source: prometheus.io/docs/alerting/latest/configuration, `webhook_config`; what takes an Alertmanager's takes ours.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from controlplane.alerts.models import ReceiverKind
from controlplane.alerts.receivers.contract import Channel, Request, Secret, Target, json_request
from controlplane.alerts.receivers.message import Alert, Labels, Message
from controlplane.core.fields import iso

SIGNATURE_HEADER = "X-Headworks-Signature"
DELIVERY_HEADER = "X-Headworks-Delivery"
VERSION = "4"
# Go's zero time, with which Alertmanager says that an alert has not ended.
NOT_ENDED = "0001-01-01T00:00:00Z"


class Webhook(Channel):
    kind = ReceiverKind.WEBHOOK
    secret = Secret("what messages are signed with", made=True)
    url = "required"

    def plan(self, message: Message, target: Target, now: datetime) -> Sequence[Request]:
        request = json_request(target.url, document(message))
        headers = {
            **request.headers,
            SIGNATURE_HEADER: signature(target.secret, request.body, int(now.timestamp())),
            DELIVERY_HEADER: message.delivery,
        }
        return [Request(request.url, request.body, headers)]


def document(message: Message) -> dict[str, Any]:
    """The whole body."""
    return {
        "version": VERSION,
        "groupKey": group_key(message.route, message.group_labels),
        "truncatedAlerts": message.alerts_more,
        "status": message.status,
        "receiver": message.receiver,
        "groupLabels": _sorted(message.group_labels),
        "commonLabels": _sorted(message.common_labels),
        "commonAnnotations": _sorted(message.common_annotations),
        "externalURL": message.external_url,
        "alerts": [_alert(each) for each in message.alerts],
    }


def group_key(route: str, labels: Labels) -> str:
    """As Alertmanager writes it: the path of the route, then the labels that group."""
    matchers = ", ".join(f"{name}={_quoted(value)}" for name, value in _sorted(labels).items())
    path = f"{{}}/{{route={_quoted(route)}}}" if route else "{}"
    return f"{path}:{{{matchers}}}"


def signature(secret: str, body: bytes, at_seconds: int) -> str:
    """The header that proves who sent this body and when: HMAC-SHA256 of `t.body` under the receiver's secret."""
    digest = hmac.new(secret.encode(), b"%d.%s" % (at_seconds, body), hashlib.sha256).hexdigest()
    return f"t={at_seconds},v1={digest}"


def _alert(alert: Alert) -> dict[str, Any]:
    return {
        "status": alert.status,
        "labels": _sorted(alert.labels),
        "annotations": _sorted(alert.annotations),
        "startsAt": iso(alert.started_at),
        "endsAt": iso(alert.ended_at) or NOT_ENDED,
        "generatorURL": alert.url,
        "fingerprint": alert.fingerprint,
    }


def _sorted(labels: Labels) -> dict[str, str]:
    return dict(sorted(labels.items()))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
