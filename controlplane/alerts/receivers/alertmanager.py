"""Kind `alertmanager`: alerts go to the Alertmanagers that a site has, which group, silence and route them there.

Several URLs are one cluster: each is told, as Prometheus does, and one that takes it is enough: they gossip what they
sent, and by the clock each is told again. Source: prometheus.io/docs/alerting/latest/clients, the API's openapi.yaml.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from pydantic import AfterValidator, Field

from controlplane.alerts.addresses import URL_MAX_CHARACTERS
from controlplane.alerts.delivery_plan import Outcome
from controlplane.alerts.models import ReceiverKind
from controlplane.alerts.receivers.contract import (
    Answer,
    Channel,
    Request,
    Secret,
    Target,
    basic,
    invalid_where,
    json_request,
)
from controlplane.alerts.receivers.fields import reachable
from controlplane.alerts.receivers.message import Alert, Message
from controlplane.core import fields as f
from wire.canonical import Document
from wire.problems import Problem

# So many pauses after it was told, Alertmanager takes an alert as resolved; Prometheus' number.
_PAUSES_UNTIL_RESOLVED = 4

_ONE_LINE = f.Like(
    Annotated[str, msgspec.Meta(pattern=r"^[^\t\r\n]+$(?!\n)")], "give it in one line: it goes in a header"
)

Url = Annotated[f.Text, Field(max_length=URL_MAX_CHARACTERS), AfterValidator(reachable)]


class AlertmanagerSettings(f.Fields):
    """`urls`: of a cluster, each; what stands before /api/v2. `user`: with the secret as its password; else the secret
    is a bearer token. Alerts that fire are told again every `resend_seconds`."""

    urls: Annotated[list[Url], Field(min_length=1, max_length=10), AfterValidator(f.distinct)]
    user: Annotated[f.Text, Field(max_length=100, pattern=r"^[^:]*$")] = ""
    resend_seconds: Annotated[int, Field(ge=10, le=3600)] = 60


class Alertmanager(Channel):
    kind = ReceiverKind.ALERTMANAGER
    settings = AlertmanagerSettings
    by_the_clock = True
    secret = Secret("password of `user`, or bearer token", required=False, like=_ONE_LINE)
    # It groups them itself, and so must have all: a storm is of thousands.
    alerts_max = 10_000

    def plan(self, message: Message, target: Target, now: datetime) -> Sequence[Request]:
        return _requests(message.alerts, target, now)

    def every_seconds(self, settings: Document) -> int:
        every: int = settings["resend_seconds"]
        return every

    def tick(self, firing: Sequence[Message], target: Target, now: datetime) -> Sequence[Request]:
        alerts = [alert for message in firing for alert in message.alerts if alert.ended_at is None]
        return _requests(alerts, target, now) if alerts else ()

    def judge(self, answer: Answer, now: datetime) -> Outcome:
        """400 says that an alert is none."""
        return invalid_where(super().judge(answer, now), 400)

    def clues(self, target: Target) -> list[str]:
        return [target.secret, *_authorization(target).values()]

    def setting_problems(self, target: Target, *, has_secret: bool) -> list[Problem]:
        if target.settings["user"] and not has_secret:
            return [Problem("/secret", "required", "give the password of `user` as `secret`")]
        return []


def _requests(alerts: Iterable[Alert], target: Target, now: datetime) -> list[Request]:
    lasts = timedelta(seconds=_PAUSES_UNTIL_RESOLVED * target.settings["resend_seconds"])
    document = [_alert(each, now + lasts) for each in alerts]
    headers = _authorization(target)
    return [json_request(f"{url.rstrip('/')}/api/v2/alerts", document, headers) for url in target.settings["urls"]]


def _alert(alert: Alert, fires_until: datetime) -> dict[str, Any]:
    document = {
        "labels": dict(alert.labels),
        "annotations": dict(alert.annotations),
        "startsAt": f.iso(alert.started_at),
        "endsAt": f.iso(alert.ended_at or fires_until),
    }
    return {**document, "generatorURL": alert.url} if alert.url else document


def _authorization(target: Target) -> dict[str, str]:
    if not target.secret:
        return {}
    user = target.settings["user"]
    return {"Authorization": basic(user, target.secret) if user else f"Bearer {target.secret}"}
