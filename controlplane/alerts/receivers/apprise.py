"""Kind `apprise`: the long tail, by Apprise's own URLs (appriseit.com), which hold their service's secrets.

Apprise makes its own connections, so it runs in a child process that is held to the addresses of every other kind.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from controlplane.alerts.models import ReceiverKind
from controlplane.alerts.receivers import email
from controlplane.alerts.receivers.contract import SECRET_URL_MAX_CHARACTERS, Channel, Job, Secret, Target
from controlplane.alerts.receivers.message import Message

_URL = re.compile(r"([a-z][a-z0-9+.-]{1,30})://[\x21-\x7e]*")
# They tell the machine that the control plane runs on, or read a file of it.
_OWN_MACHINE = frozenset(
    {"blink1", "blink1s", "dbus", "file", "gio", "glib", "gnome", "kde", "macosx", "qt", "syslog", "windows"}
)
_TYPES = {"critical": "failure", "warning": "warning", "info": "info"}


class Apprise(Channel):
    kind = ReceiverKind.APPRISE
    secret = Secret("Apprise URL of a service")

    def plan(self, message: Message, target: Target, now: datetime) -> Job:
        kind = "success" if message.status == "resolved" else _TYPES.get(message.severity, "warning")
        given = {"url": target.secret, "title": message.headline, "body": email.text(message), "type": kind}
        return Job("apprise", given)

    def secret_problem(self, secret: str, allowed: Sequence[Any]) -> str | None:
        """The addresses in it are judged when they are connected to: each service has a form of its own."""
        form = _URL.fullmatch(secret)
        if form is None or len(secret) > SECRET_URL_MAX_CHARACTERS:
            return (
                f"give one Apprise URL, service://…, of {SECRET_URL_MAX_CHARACTERS} characters at most, without spaces"
            )
        if form[1] in _OWN_MACHINE:
            return f"{form[1]}:// tells this machine alone; give the URL of a service"
        return None
