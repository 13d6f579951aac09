"""How long a log-in lasts: Django's sessions in the database, with an end at the latest and one by being idle.

Django's settings name this module as SESSION_ENGINE. The end at the latest is set once, when a person logs in. Idle is
who opens no page: what an open page asks for by itself (its stream, its panels, its charts) keeps nobody logged in.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends import db
from django.http import HttpRequest
from django.utils import timezone

from controlplane import settings_rows as rows
from controlplane.core import oidc_rows
from controlplane.core.models import User

_SEEN_AT = "seen_at"
# A page within this time of the last one costs no write.
_SEEN_STEP_SECONDS = 60


class SessionStore(db.SessionStore):
    """Sessions in the database, of which one that was idle too long is as good as empty."""

    def decode(self, session_data: bytes | str) -> dict[str, Any]:
        kept: dict[str, Any] = super().decode(session_data)
        return {} if _is_idle(kept) else kept


def _is_idle(kept: dict[str, Any]) -> bool:
    idle_seconds = rows.SESSION_IDLE_MINUTES.read() * 60
    return SESSION_KEY in kept and bool(idle_seconds) and time.time() - kept.get(_SEEN_AT, 0) > idle_seconds


def begin(sender: object, request: HttpRequest, user: User, **more: object) -> None:
    """Set the ends of a log-in that has just been made, and forget those of others that have passed.

    A receiver of Django's signal; the session has its new key already.
    """
    minutes = rows.SESSION_HOURS.read() * 60
    if user.oidc_issuer is not None:
        minutes = min(minutes, oidc_rows.SESSION_MINUTES.read())
    request.session.set_expiry(timezone.now() + timedelta(minutes=minutes))
    request.session[_SEEN_AT] = int(time.time())
    SessionStore.clear_expired()


def note_page(request: HttpRequest) -> None:
    """Remember that a person opened a page, unless the page itself asked for a part of it anew."""
    if request.headers.get("HX-Request"):
        return
    now = int(time.time())
    if now - request.session.get(_SEEN_AT, 0) >= _SEEN_STEP_SECONDS:
        request.session[_SEEN_AT] = now
