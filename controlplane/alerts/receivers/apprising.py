"""Sending by Apprise; runs in the child process, which is held to addresses that may be reached."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import apprise
import requests

from controlplane.alerts.delivery_plan import Outcome, Reason, judge

_TEXT_CHARACTERS = 2000


def send(given: dict[str, Any], now: datetime) -> Outcome:
    """`given`: url, title, body, type. How it ended, by what the service answered where it was asked by HTTP."""
    answers: list[requests.Response] = []
    _listen(answers)
    # Nothing is kept between two messages.
    asset = apprise.AppriseAsset(storage_mode=apprise.PersistentStoreMode.MEMORY, async_mode=False)
    service = apprise.Apprise.instantiate(given["url"], asset=asset)
    if service is None:
        return Outcome(Reason.REJECTED, "Apprise knows no service of this URL, or something is missing in it")
    if service.overflow_mode is apprise.OverflowMode.UPSTREAM:
        # Services refuse what is too long for them: of a storm its beginning is told.
        service.overflow_mode = apprise.OverflowMode.TRUNCATE
    with apprise.LogCapture(level=apprise.logging.WARNING) as log:  # type: ignore[no-untyped-call]
        taken = bool(service.notify(title=given["title"], body=given["body"], notify_type=given["type"]))
        said = log.getvalue()[:_TEXT_CHARACTERS]
    status, retry_after = (answers[-1].status_code, answers[-1].headers.get("Retry-After")) if answers else (None, None)
    if taken:
        return Outcome(Reason.TAKEN, "Apprise says that the service took it", status=status)
    if answers and (outcome := judge(answers[-1].status_code, retry_after, now)).reason is not Reason.TAKEN:
        return outcome._replace(said=answers[-1].text[:_TEXT_CHARACTERS])
    return Outcome(Reason.UNREACHABLE, "Apprise could not tell the service", status=status, said=said)


def _listen(answers: list[requests.Response]) -> None:
    """Keep each answer, and follow no redirect."""
    make = requests.Session.__init__

    def made(session: requests.Session) -> None:
        make(session)
        session.hooks["response"].append(lambda answer, **_: answers.append(answer))

    setattr(requests.Session, "__init__", made)  # noqa: B010
    setattr(requests.Session, "get_redirect_target", lambda session, answer: None)  # noqa: B010
