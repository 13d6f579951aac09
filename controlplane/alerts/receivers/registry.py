"""The kinds of receivers that there are."""

from __future__ import annotations

from collections.abc import Mapping

from controlplane.alerts.models import ReceiverKind
from controlplane.alerts.receivers.alertmanager import Alertmanager
from controlplane.alerts.receivers.apprise import Apprise
from controlplane.alerts.receivers.contract import Channel
from controlplane.alerts.receivers.email import Email
from controlplane.alerts.receivers.heartbeat import Heartbeat
from controlplane.alerts.receivers.opsgenie import Opsgenie
from controlplane.alerts.receivers.pagerduty import PagerDuty
from controlplane.alerts.receivers.slack import Slack
from controlplane.alerts.receivers.teams import Teams
from controlplane.alerts.receivers.webhook import Webhook

_ALL: tuple[Channel, ...] = (
    Webhook(),
    PagerDuty(),
    Slack(),
    Teams(),
    Opsgenie(),
    Email(),
    Apprise(),
    Alertmanager(),
    Heartbeat(),
)
CHANNELS: Mapping[str, Channel] = {channel.kind: channel for channel in _ALL}


def channel_of(kind: str) -> Channel:
    """The channel of a receiver's kind."""
    return CHANNELS[ReceiverKind(kind)]
