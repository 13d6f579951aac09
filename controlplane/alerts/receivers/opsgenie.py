"""Kind `opsgenie`: an incident is one alert of Opsgenie's by its alias: created, acknowledged, closed.

Source: docs.opsgenie.com/docs/alert-api. An account in the EU has the URL https://api.eu.opsgenie.com. Jira Service
Management takes the same calls at its own URL.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from pydantic import Field

from controlplane.alerts.delivery_plan import Outcome
from controlplane.alerts.models import ReceiverKind
from controlplane.alerts.receivers.contract import (
    Answer,
    Channel,
    Request,
    Secret,
    Target,
    cut,
    invalid_where,
    json_request,
)
from controlplane.alerts.receivers.message import Message
from controlplane.core import fields as f

# What Opsgenie takes of each field.
_MESSAGE_CHARACTERS, _DESCRIPTION_CHARACTERS, _ENTITY_CHARACTERS = 130, 15_000, 512
_TAG_CHARACTERS, _USER_CHARACTERS = 50, 100
# Of all details, their names included; and of one, so that it leaves room for the others.
_DETAILS_CHARACTERS, _DETAIL_CHARACTERS = 8_000, 1_000
_PRIORITIES = {"critical": "P1", "warning": "P3", "info": "P5"}
_KEY = f.Like(
    Annotated[str, msgspec.Meta(pattern=r"^[\x21-\x7e]{8,200}$(?!\n)")],
    "give the API key of an API integration, without spaces",
)

Team = Annotated[f.Text, Field(min_length=1, max_length=100)]


class OpsgenieSettings(f.Fields):
    """`teams`: who is called, by name; none: whom the integration says."""

    teams: Annotated[list[Team], Field(max_length=50)] = Field(default_factory=list)


class Opsgenie(Channel):
    kind = ReceiverKind.OPSGENIE
    settings = OpsgenieSettings
    secret = Secret("API key of an API integration", like=_KEY)
    url = "https://api.opsgenie.com"
    takes_acknowledged = True

    def plan(self, message: Message, target: Target, now: datetime) -> Sequence[Request]:
        alerts = f"{target.url.rstrip('/')}/v2/alerts"
        alias = f"{alerts}/{quote(message.key, safe='')}"
        headers = {"Authorization": f"GenieKey {target.secret}"}
        said = {"source": "Headworks", "note": message.headline}
        if message.occasion == "acknowledged":
            by = {"user": cut(message.acknowledged_by, _USER_CHARACTERS)} if message.acknowledged_by else {}
            return [json_request(f"{alias}/acknowledge?identifierType=alias", {**said, **by}, headers)]
        if message.status == "resolved":
            return [json_request(f"{alias}/close?identifierType=alias", said, headers)]
        return [json_request(alerts, alert(message, target.settings.get("teams", [])), headers)]

    def judge(self, answer: Answer, now: datetime) -> Outcome:
        """422 says that the alert itself cannot be taken."""
        return invalid_where(super().judge(answer, now), 422)


def alert(message: Message, teams: Sequence[str]) -> dict[str, Any]:
    lines = [f"{each.status}: {each.summary}" for each in message.alerts]
    if message.alerts_more:
        lines.append(f"and {message.alerts_more} more")
    about = message.common_annotations.get("description", "")
    return {
        "message": cut(message.title, _MESSAGE_CHARACTERS),
        "alias": message.key,
        "description": cut("\n".join([about, *lines, message.url]).strip(), _DESCRIPTION_CHARACTERS),
        "priority": _PRIORITIES.get(message.severity, "P3"),
        "source": "Headworks",
        "entity": cut(message.common_labels.get("node") or message.common_labels.get("pool") or "", _ENTITY_CHARACTERS),
        "tags": sorted({message.severity, cut(message.common_labels.get("alertname", ""), _TAG_CHARACTERS)} - {""}),
        "details": _details(message),
        "responders": [{"type": "team", "name": team} for team in teams],
    }


def _details(message: Message) -> dict[str, str]:
    """Labels, then annotations, as many as there is room for; of one name the label."""
    details, room = dict[str, str](), _DETAILS_CHARACTERS
    for name, value in (*message.common_labels.items(), *message.common_annotations.items()):
        if name in details:
            continue
        text = cut(value, _DETAIL_CHARACTERS)
        room -= len(name) + len(text)
        if room < 0:
            break
        details[name] = text
    return details
