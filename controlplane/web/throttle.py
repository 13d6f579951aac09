"""How many guesses a name may have from one address, and an address with all names.

Kept in the database, so that all web processes count together. A name alone has no bound: whoever knows it could keep
its person out.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.crypto import salted_hmac

from controlplane import settings_rows as rows
from controlplane.web.models import LoginFailure

FAILURES_MAX = rows.LOGIN_FAILURES_MAX.read()
ADDRESS_FAILURES_MAX = rows.LOGIN_ADDRESS_FAILURES_MAX.read()
WINDOW = timedelta(minutes=rows.LOGIN_WINDOW_MINUTES.read())


def _subject(address: str, name: str = "") -> str:
    """Of a name from an address; without one, of the address."""
    return salted_hmac("controlplane.web.throttle", f"{address}\n{name.casefold()}", algorithm="sha256").hexdigest()


def begin_attempt(name: str, address: str) -> timedelta | None:
    """Count an attempt as failed, before its password is looked at; or how long to wait, where there were too many.

    Counting first means that guesses sent at the same moment cannot all pass. An attempt that must wait is not
    counted: trying again does not lengthen the wait.
    """
    now = timezone.now()
    LoginFailure.objects.filter(at__lte=now - WINDOW).delete()
    bounds = ((_subject(address, name), FAILURES_MAX), (_subject(address), ADDRESS_FAILURES_MAX))
    attempts = [LoginFailure.objects.create(subject=subject, at=now) for subject, _ in bounds]
    waits = [_wait(attempt, most, now) for attempt, (_, most) in zip(attempts, bounds, strict=True)]
    longest = max((wait for wait in waits if wait is not None), default=None)
    if longest is not None:
        LoginFailure.objects.filter(pk__in=[attempt.pk for attempt in attempts]).delete()
    return longest


def _wait(attempt: LoginFailure, most: int, now: datetime) -> timedelta | None:
    earlier = LoginFailure.objects.filter(subject=attempt.subject).exclude(pk=attempt.pk).order_by("-at")
    counted = list(earlier.values_list("at", flat=True)[:most])
    return counted[-1] + WINDOW - now if len(counted) == most else None


def forget_failures(name: str, address: str) -> None:
    """The right password was given: the name's guesses are forgotten, of the address's this one alone."""
    LoginFailure.objects.filter(subject=_subject(address, name)).delete()
    newest = LoginFailure.objects.filter(subject=_subject(address)).order_by("-pk").first()
    if newest is not None:
        newest.delete()
