"""How long a log-in lasts: Django's sessions in the database, with an end at the latest and one by being idle.

Django's settings name this module as SESSION_ENGINE. The end at the latest is set once, when a person logs in. Idle is
who opens no page: what an open page asks for by itself (its stream, its panels, its charts) keeps nobody logged in.
"""

from __future__ import annotations

import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends import db
from django.contrib.sessions.models import Session
from django.http import HttpRequest
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from controlplane import settings_rows as rows
from controlplane.core import oidc_rows
from controlplane.core.models import User

_SEEN_AT, _BEGUN_AT, _ADDRESS = "seen_at", "begun_at", "address"
# More than a fleet has people; reading one takes some microseconds.
READ_MAX = 5000
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
    request.session[_SEEN_AT] = request.session[_BEGUN_AT] = int(time.time())
    request.session[_ADDRESS] = str(request.META.get("REMOTE_ADDR", ""))
    SessionStore.clear_expired()


def note_page(request: HttpRequest) -> None:
    """Remember that a person opened a page, unless the page itself asked for a part of it anew."""
    if request.headers.get("HX-Request"):
        return
    now = int(time.time())
    if now - request.session.get(_SEEN_AT, 0) >= _SEEN_STEP_SECONDS:
        request.session[_SEEN_AT] = now


class LogIn(NamedTuple):
    """A log-in that is open. `begun_at` and `address`: when and from where it was made."""

    key: str
    begun_at: datetime | None
    address: str
    seen_at: datetime | None
    ends_at: datetime


def open_log_ins() -> dict[int, list[LogIn]]:
    """By user, the newest first; of the READ_MAX that last longest. Two queries."""
    rows = Session.objects.filter(expire_date__gt=timezone.now()).order_by("-expire_date")[:READ_MAX]
    read = [(row, SessionStore().decode(row.session_data)) for row in rows]
    users = User.objects.filter(is_active=True).in_bulk(
        {int(kept[SESSION_KEY]) for _, kept in read if SESSION_KEY in kept}
    )
    hashes = {number: user.get_session_auth_hash() for number, user in users.items()}
    found: defaultdict[int, list[LogIn]] = defaultdict(list)
    for row, kept in read:
        number = int(kept.get(SESSION_KEY, 0))
        # Of one that was ended the row stays until its time is over.
        if number in hashes and constant_time_compare(kept.get(HASH_SESSION_KEY, ""), hashes[number]):
            found[number].append(_log_in(row, kept))
    for log_ins in found.values():
        log_ins.sort(key=lambda each: each.seen_at or each.ends_at, reverse=True)
    return found


def _log_in(row: Session, kept: dict[str, Any]) -> LogIn:
    address = str(kept.get(_ADDRESS, ""))
    return LogIn(row.session_key, _moment(kept.get(_BEGUN_AT)), address, _moment(kept.get(_SEEN_AT)), row.expire_date)


def _moment(seconds: int | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
