"""Kind `teams`: an adaptive card to a workflow of Microsoft Teams, whose URL is the secret.

Source: learn.microsoft.com, "Create incoming webhooks with Workflows for Microsoft Teams", and the schema of adaptive
cards 1.4 (adaptivecards.io).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from controlplane.alerts.models import ReceiverKind
from controlplane.alerts.receivers.contract import Channel, Request, Secret, Target, cut, fitting
from controlplane.alerts.receivers.message import Message

_COLOURS = {"critical": "Attention", "warning": "Warning", "info": "Accent"}
_MESSAGE_BYTES = 28_000


class Room(NamedTuple):
    """How much of a message a card shows."""

    alerts: int = 20
    facts: int = 12
    line_characters: int = 200
    text_characters: int = 2000


# Characters beyond ASCII, and those that Markdown would take for its own, are several bytes each.
_ROOMS = (Room(), Room(10, 8, 120, 800), Room(5, 4, 80, 200))
_MARKDOWN = re.compile(r"([\\`*_\[\]<>#~])")


class Teams(Channel):
    kind = ReceiverKind.TEAMS
    secret = Secret("URL of a workflow that posts to a channel", is_url=True)

    def plan(self, message: Message, target: Target, now: datetime) -> Sequence[Request]:
        return [fitting(target.secret, (document(message, room) for room in _ROOMS), _MESSAGE_BYTES)]


def document(message: Message, room: Room) -> dict[str, Any]:
    colour = "Good" if message.status == "resolved" else _COLOURS.get(message.severity, "Default")
    body: list[dict[str, Any]] = [_text(message.headline, size="Large", weight="Bolder", color=colour)]
    if about := message.common_annotations.get("description"):
        body.append(_text(cut(about, room.text_characters)))
    most = room.line_characters
    facts = [
        {"title": cut(name, most), "value": plain(cut(value, most))} for name, value in message.facts[: room.facts]
    ]
    if facts:
        body.append({"type": "FactSet", "facts": facts})
    shown = message.alerts[: room.alerts]
    body += [_text(f"{each.status}: {cut(each.summary, most)}", spacing="Small") for each in shown]
    if more := message.alerts_more + len(message.alerts) - len(shown):
        body.append(_text(f"and {more} more", isSubtle=True))
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "msteams": {"width": "Full"},
        "body": body,
        "actions": _actions(message),
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [attachment]}


def _actions(message: Message) -> list[dict[str, Any]]:
    urls = [("Open in Headworks", message.url), ("Runbook", message.runbook)]
    return [{"type": "Action.OpenUrl", "title": title, "url": url} for title, url in urls if url]


def _text(text: str, **looks: Any) -> dict[str, Any]:
    return {"type": "TextBlock", "text": plain(text), "wrap": True, **looks}


def plain(text: str) -> str:
    """Text that a card shows as it is: a card's texts are Markdown."""
    return _MARKDOWN.sub(r"\\\1", text)
