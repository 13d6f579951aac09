"""What a kind of receiver is: what it is set up with, and how a message becomes what is sent. Pure.

A kind is one module with one subclass of `Channel`, entered in registry.py; sending.py carries its plans out. After
healthchecks' transports: one small contract, and whatever is particular to a service stays in its module.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Literal

from controlplane.alerts.addresses import url_refusal
from controlplane.alerts.delivery_plan import Outcome, Reason, judge
from controlplane.alerts.models import ReceiverKind
from controlplane.alerts.receivers.message import Message
from controlplane.core import fields as f
from wire.canonical import Document
from wire.problems import Problem

SECRET_URL_MAX_CHARACTERS = 2000


@dataclass(frozen=True)
class Target:
    """Where a message goes: what the receiver's row holds, its secret in clear."""

    name: str
    url: str
    settings: Document
    secret: str = field(default="", repr=False)


@dataclass(frozen=True)
class Request:
    """One HTTP request, and where it goes."""

    url: str = field(repr=False)
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    method: Literal["POST", "GET"] = "POST"


@dataclass(frozen=True)
class Job:
    """What a child process does instead, by its own protocol (child.py)."""

    kind: Literal["smtp", "apprise"]
    given: Document = field(repr=False)


@dataclass(frozen=True)
class Answer:
    """What came back. `body`: the beginning of it, a few KB at most."""

    status: int
    retry_after: str | None
    body: str


@dataclass(frozen=True)
class Secret:
    """What is kept sealed of a kind; `says` what it is. `made`: here, and shown once; else it is given, never shown."""

    says: str
    made: bool = False
    required: bool = True
    is_url: bool = False
    like: f.Like | None = None


class NoSettings(f.Fields):
    """The kind takes none."""


class Channel:
    """A kind of receiver. A subclass says what is particular to it."""

    kind: ClassVar[ReceiverKind]
    settings: ClassVar[type[f.Fields]] = NoSettings
    secret: ClassVar[Secret | None] = None
    # The row's `url`: "required", the one that is taken where none is given, or "" where the kind has none.
    url: ClassVar[str] = ""
    # Whether incidents are sent to it at all, and whether it is told that a person has seen one.
    takes_incidents: ClassVar[bool] = True
    takes_acknowledged: ClassVar[bool] = False
    # Whether it is told something every so often (`every_seconds`, `tick`).
    by_the_clock: ClassVar[bool] = False
    # Alerts that a message may hold; None: as many as HEADWORKS_MESSAGE_ALERTS_MAX says.
    alerts_max: ClassVar[int | None] = None

    def plan(self, message: Message, target: Target, now: datetime) -> Sequence[Request] | Job:
        """What to send for a message; of several requests, one that is taken is enough."""
        raise NotImplementedError

    def judge(self, answer: Answer, now: datetime) -> Outcome:
        """The outcome that an answer is."""
        return judge(answer.status, answer.retry_after, now)

    def every_seconds(self, settings: Document) -> int:
        """Where it is told by the clock: how often a receiver of these settings is."""
        raise NotImplementedError

    def tick(self, firing: Sequence[Message], target: Target, now: datetime) -> Sequence[Request]:
        """What to send then. `firing`: the incidents that it was told of and that still fire."""
        raise NotImplementedError

    def clues(self, target: Target) -> list[str]:
        """Texts by which an answer or an error would give the secret away."""
        return [target.secret]

    def url_problem(self, url: str) -> str | None:
        """What is wrong with the row's `url`; its address is judged apart."""
        if self.url and not url:
            return "give the URL that messages are sent to"
        if not self.url and url:
            return f"a receiver of kind {self.kind.value} has no url" + (
                "; its URL is the secret" if self.secret and self.secret.is_url else ""
            )
        return None

    def secret_problem(self, secret: str, allowed: Sequence[Any]) -> str | None:
        """What is wrong with a secret that is given."""
        if self.secret is None:
            return f"a receiver of kind {self.kind.value} has no secret"
        if self.secret.made:
            return "this secret is made here: leave it out, and see rotate-secret"
        if self.secret.is_url:
            return url_refusal(secret, allowed, longest=SECRET_URL_MAX_CHARACTERS, query=True)
        return self.secret.like.refusal(secret) if self.secret.like else None

    def setting_problems(self, target: Target, *, has_secret: bool) -> list[Problem]:
        """What does not go together, each at its path under `/settings`."""
        return []


def json_request(url: str, document: Any, headers: Mapping[str, str] | None = None) -> Request:
    body = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    return Request(url, body, {"Content-Type": "application/json", **(headers or {})})


def fitting(url: str, documents: Iterable[Any], most_bytes: int) -> Request:
    """The first of these documents, each with less in it than the one before, that may go in one message; or the
    last."""
    for document in documents:
        request = json_request(url, document)
        if len(request.body) <= most_bytes:
            break
    return request


def basic(user: str, password: str) -> str:
    """The Authorization header of RFC 7617."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def invalid_where(outcome: Outcome, *statuses: int) -> Outcome:
    """With these statuses the service says that it will never take this message, whatever is mended."""
    return outcome._replace(reason=Reason.INVALID) if outcome.status in statuses else outcome


def cut(text: str, most: int) -> str:
    """At most so many characters; what is cut off shows."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
