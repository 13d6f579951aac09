"""How many guesses a name may have from one address. Kept in the database, so that all web processes count together."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone
from django.utils.crypto import salted_hmac

from controlplane import settings_rows as rows
from controlplane.web.models import LoginFailure

FAILURES_MAX = rows.LOGIN_FAILURES_MAX.read()
WINDOW = timedelta(minutes=rows.LOGIN_WINDOW_MINUTES.read())


def _subject(name: str, address: str) -> str:
    return salted_hmac("controlplane.web.throttle", f"{address}\n{name.casefold()}", algorithm="sha256").hexdigest()


def begin_attempt(name: str, address: str) -> timedelta | None:
    """Count an attempt as failed, before its password is looked at; or how long to wait, where there were too many.

    Counting first means that guesses sent at the same moment cannot all pass. An attempt that must wait is not
    counted: trying again does not lengthen the wait.
    """
    now = timezone.now()
    LoginFailure.objects.filter(at__lte=now - WINDOW).delete()
    attempt = LoginFailure.objects.create(subject=_subject(name, address), at=now)
    earlier = LoginFailure.objects.filter(subject=attempt.subject).exclude(pk=attempt.pk).order_by("-at")
    counted = list(earlier.values_list("at", flat=True)[:FAILURES_MAX])
    if len(counted) < FAILURES_MAX:
        return None
    attempt.delete()
    return counted[-1] + WINDOW - now


def forget_failures(name: str, address: str) -> None:
    """The right password was given."""
    LoginFailure.objects.filter(subject=_subject(name, address)).delete()
