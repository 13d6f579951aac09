"""Kind `slack`: an incoming webhook, whose URL is the secret. Mattermost and Rocket.Chat take the same.

Source: docs.slack.dev, "Sending messages using incoming webhooks" and "Formatting message text".
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

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

_COLOURS = {"critical": "#d32f2f", "warning": "#f9a825", "info": "#1976d2"}
_RESOLVED_COLOUR = "#2e7d32"
_TITLE_CHARACTERS, _LINE_CHARACTERS, _TEXT_CHARACTERS, _FIELDS = 250, 300, 3000, 10


class Slack(Channel):
    kind = ReceiverKind.SLACK
    secret = Secret("URL of an incoming webhook", is_url=True)

    def plan(self, message: Message, target: Target, now: datetime) -> Sequence[Request]:
        return [json_request(target.secret, document(message))]

    def judge(self, answer: Answer, now: datetime) -> Outcome:
        """400 (`invalid_payload`) is about the message; a channel or a webhook that is gone answers 403, 404 or 410."""
        return invalid_where(super().judge(answer, now), 400)


def document(message: Message) -> dict[str, Any]:
    headline = escaped(cut(message.headline, _TITLE_CHARACTERS))
    lines = [f"• {each.status}: {escaped(cut(each.summary, _LINE_CHARACTERS))}" for each in message.alerts]
    if message.alerts_more:
        lines.append(f"• and {message.alerts_more} more")
    if about := message.common_annotations.get("description"):
        lines.insert(0, escaped(cut(about, _TEXT_CHARACTERS // 2)))
    if message.runbook:
        lines.insert(0, f"<{escaped(message.runbook)}|Runbook>")
    attachment: dict[str, Any] = {
        "fallback": headline,
        "color": _RESOLVED_COLOUR if message.status == "resolved" else _COLOURS.get(message.severity, "#616161"),
        "title": headline,
        "text": _whole_lines(lines),
        "fields": [
            {"title": escaped(name), "value": escaped(cut(value, _LINE_CHARACTERS)), "short": True}
            for name, value in message.facts[:_FIELDS]
        ],
        "mrkdwn_in": ["text"],
        "footer": "Headworks",
        "ts": int((message.ended_at or message.started_at).timestamp()),
    }
    if message.url:
        attachment["title_link"] = message.url
    return {"attachments": [attachment]}


def escaped(text: str) -> str:
    """Text in which nothing is a link, a mention or a channel."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _whole_lines(lines: Sequence[str]) -> str:
    """As many as there is room for: none is cut within an escape."""
    kept, room = [], _TEXT_CHARACTERS
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            kept.append("…")
            break
        kept.append(line)
    return "\n".join(kept)
