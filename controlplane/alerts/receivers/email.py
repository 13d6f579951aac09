"""Kind `email`: text and HTML by SMTP; what is about one incident is one thread (RFC 5322, 3.6.4).

The server is the site's, not the receiver's: HEADWORKS_SMTP_* name it.
"""

from __future__ import annotations

import base64
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime
from html import escape
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from controlplane import settings_rows
from controlplane.alerts.models import ReceiverKind
from controlplane.alerts.receivers.contract import Channel, Job, Target, cut
from controlplane.alerts.receivers.message import Message
from controlplane.core import fields as f
from controlplane.settings_rows import mail_address

_SUBJECT_CHARACTERS = 200


def _address(text: str) -> str:
    try:
        return mail_address(text)
    except ValueError as error:
        raise PydanticCustomError("address", "{message}", {"message": str(error)}) from error


Address = Annotated[f.Text, Field(max_length=254), AfterValidator(_address)]


class EmailSettings(f.Fields):
    """`to`: who is written to."""

    to: Annotated[list[Address], Field(min_length=1, max_length=50), AfterValidator(f.distinct)]


class Email(Channel):
    kind = ReceiverKind.EMAIL
    settings = EmailSettings

    def plan(self, message: Message, target: Target, now: datetime) -> Job:
        return Job("smtp", {"to": target.settings["to"], "mail": mail(message, target.settings["to"], now).as_string()})

    def clues(self, target: Target) -> list[str]:
        """The mail server's password, also as SMTP's AUTH sends it (RFC 4616, RFC 4954)."""
        user, password = settings_rows.SMTP_USER.read(), settings_rows.SMTP_PASSWORD.read()
        return [password, _base64(password), _base64(f"\0{user}\0{password}")] if password else []


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def mail(message: Message, to: list[str], now: datetime) -> EmailMessage:
    """The whole mail but its sender. Its subject does not change, by which some readers tell threads."""
    made = EmailMessage()
    domain = urlsplit(message.external_url).hostname or "headworks.invalid"
    thread = f"<{message.key}@{domain}>"
    first = message.occasion == "first"
    subject = cut(" ".join(f"[Headworks] {message.title}".split()), _SUBJECT_CHARACTERS)
    made["Subject"] = subject if first else f"Re: {subject}"
    made["To"] = ", ".join(to)
    made["Date"] = format_datetime(now)
    # With every attempt the same: a server that took it before knows it again.
    made["Message-ID"] = thread if first else f"<{message.delivery}@{domain}>"
    if not first:
        made["In-Reply-To"] = made["References"] = thread
    # RFC 3834: no out-of-office note comes back.
    made["Auto-Submitted"] = "auto-generated"
    made["X-Headworks-Delivery"] = message.delivery
    made.set_content(text(message))
    made.add_alternative(html(message), subtype="html")
    return made


def text(message: Message) -> str:
    lines = [message.headline, "", *filter(None, [message.common_annotations.get("description", "")])]
    lines += [f"{name}: {value}" for name, value in message.facts]
    lines += ["", *(f"- {each.status}: {each.summary}" for each in message.alerts)]
    if message.alerts_more:
        lines.append(f"- and {message.alerts_more} more")
    lines += ["", *filter(None, [message.runbook, message.url])]
    return "\n".join(lines).rstrip() + "\n"


def html(message: Message) -> str:
    facts = "".join(
        f"<tr><th align=left>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in message.facts
    )
    alerts = "".join(f"<li>{escape(each.status)}: {escape(each.summary)}</li>" for each in message.alerts)
    more = f"<li>and {message.alerts_more} more</li>" if message.alerts_more else ""
    about = message.common_annotations.get("description", "")
    links = [("Runbook", message.runbook), ("Open in Headworks", message.url)]
    linked = " · ".join(f'<a href="{escape(url)}">{title}</a>' for title, url in links if url)
    parts = [f"<h2>{escape(message.headline)}</h2>", f"<p>{escape(about)}</p>" if about else ""]
    parts += [f"<table>{facts}</table>", f"<ul>{alerts}{more}</ul>", f"<p>{linked}</p>" if linked else ""]
    return "<!doctype html><html><body>" + "".join(parts) + "</body></html>"
