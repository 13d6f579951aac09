"""The only writer of receivers: where incidents are sent. They are no part of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from django.utils import timezone
from pydantic import Field

from controlplane.alerts import models as rows
from controlplane.alerts.addresses import URL_MAX_CHARACTERS
from controlplane.alerts.receivers.checking import problems_of, read_settings, url_of
from controlplane.alerts.receivers.contract import SECRET_URL_MAX_CHARACTERS, Target
from controlplane.alerts.receivers.registry import channel_of
from controlplane.alerts.services import breakers
from controlplane.alerts.services.alert_lock import lock_alerts
from controlplane.alerts.services.standing import routes_to_nobody
from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Conflict
from controlplane.core.nouns import Noun, some_of
from controlplane.core.sealed import seal, sealed_at, unseal
from controlplane.core.tokens import new_token
from wire.canonical import Document
from wire.problems import Problem

SECRET_PREFIX = "hws"  # noqa: S105
# What a change to makes a receiver another one, whose failures are over.
_LEADS_ELSEWHERE = ("url", "settings", "enabled")


class ReceiverFields(f.Fields):
    """`url`: http(s)://host[:port]/path, which every viewer sees. `send_resolved`: say too when an incident ends.

    `settings` are those of its kind (docs/receivers.md). `secret` is written and never read; a webhook's is made here
    and shown once. `rate_limit_per_minute`: 0 for as many as there are.
    """

    kind: Annotated[rows.ReceiverKind, Field(strict=False)] = f.default_of(rows.Receiver, "kind")
    url: Annotated[f.Text, Field(max_length=URL_MAX_CHARACTERS)] = ""
    settings: dict[str, Any] = Field(default_factory=dict)
    secret: Annotated[f.Text, Field(min_length=1, max_length=SECRET_URL_MAX_CHARACTERS)] | None = None
    min_severity: Annotated[rows.Severity, Field(strict=False)] = f.default_of(rows.Receiver, "min_severity")
    send_resolved: bool = f.default_of(rows.Receiver, "send_resolved")
    enabled: bool = f.default_of(rows.Receiver, "enabled")
    rate_limit_per_minute: Annotated[int, Field(ge=0, le=10_000)] = f.default_of(rows.Receiver, "rate_limit_per_minute")


class ReceiverNoun(Noun[rows.Receiver]):
    noun = "receiver"
    row = rows.Receiver
    fields = ReceiverFields

    def describe(self, row: rows.Receiver) -> Document:
        return {
            "name": row.name,
            "kind": row.kind,
            "url": row.url,
            "settings": row.settings,
            "min_severity": row.min_severity,
            "send_resolved": row.send_resolved,
            "enabled": row.enabled,
            "rate_limit_per_minute": row.rate_limit_per_minute,
            "secret_made_at": f.iso(sealed_at(row.sealed_secret)) if row.sealed_secret else None,
        }

    def assign(self, row: rows.Receiver, values: Document) -> list[Problem]:
        """A secret that is not given stays; one that is null goes, where the kind can do without."""
        if row.pk and values["kind"] != row.kind:
            return [Problem("/kind", "fixed", f"it is {row.kind}; make another receiver for another kind")]
        channel, secret = channel_of(values["kind"]), values.get("secret")
        removed = row.pk and "secret" in values and secret is None
        has_secret = bool(secret or (row.sealed_secret and not removed))
        plain = {name: value for name, value in values.items() if name != "secret"}
        plain["url"] = url_of(channel, values["url"])
        plain["settings"] = read_settings(channel, values["settings"])
        target = Target(row.name, plain["url"], plain["settings"])
        if problems := problems_of(channel, target, secret=secret, has_secret=has_secret):
            return problems
        if secret or removed or any(plain[name] != getattr(row, name) for name in _LEADS_ELSEWHERE):
            forget_failures(row)
        if secret:
            row.sealed_secret = seal(secret)
        elif not has_secret:
            row.sealed_secret = _new_sealed_secret() if channel.secret and channel.secret.made else ""
        return super().assign(row, plain)

    def users(self, row: rows.Receiver) -> list[str]:
        routes = rows.AlertRoute.objects.order_by("name").values_list("name", "receivers")
        return [f"alert route {name!r}" for name, receivers in routes if row.name in receivers]

    def touch(self, unit: UnitOfWork, row: rows.Receiver, name: str) -> None:
        """Nothing of it is compiled: targets send nothing to receivers."""

    def find(self, name: str, *, lock: bool = False) -> rows.Receiver | None:
        """Who writes messages to it does not wait for who changes it, and may hold an incident that is to end."""
        if not lock or self.name_like.refusal(name):
            return super().find(name)
        return rows.Receiver.objects.select_for_update(no_key=True).filter(name=name).first()

    def update(self, unit: UnitOfWork, name: str, fields: Mapping[str, Any]) -> rows.Receiver:
        # Before the receiver's row, as attempts.settle does: its incident may end.
        lock_alerts()
        row = super().update(unit, name, fields)
        if not row.enabled and (lead := [route for route, named in routes_to_nobody().items() if name in named]):
            says = f"nobody is told any more of what goes by {some_of(lead)}"
            unit.warnings.append(Problem("/enabled", "off", says))
        return row

    def delete(self, unit: UnitOfWork, name: str) -> None:
        lock_alerts()
        row = self.get(name)
        breakers.end_incident(name, timezone.now(), f"removed by {unit.actor.name}: {unit.reason}")
        # From here on nobody writes another message to it.
        list(rows.Receiver.objects.select_for_update().filter(pk=row.pk))
        super().delete(unit, name)

    def rotate_secret(self, unit: UnitOfWork, name: str) -> rows.Receiver:
        """Sign with a new secret from now on, messages that wait included. The old one is of no more use.

        Raises Conflict where the secret of its kind is made elsewhere.
        """
        row = self.lock(name)
        secret = channel_of(row.kind).secret
        if secret is None or not secret.made:
            raise Conflict(f"{name} is of kind {row.kind}: give its new secret by PATCH", code="not_made_here")
        before: dict[str, Any] = {**self.describe(row), "secret_rotated": False}
        row.sealed_secret = _new_sealed_secret()
        row.save(update_fields=["sealed_secret"])
        # Two within a second have one time: the audit must see that it changed.
        unit.record(self.noun, name, before, {**self.describe(row), "secret_rotated": True})
        return row


def forget_failures(row: rows.Receiver) -> None:
    """One that leads elsewhere now is tried as if nothing had failed."""
    if row.open_until is not None:
        breakers.end_incident(row.name, timezone.now(), "somebody changed where it leads")
    row.failures_in_a_row, row.open_until, row.last_error = 0, None, ""


def _new_sealed_secret() -> str:
    return seal(new_token(SECRET_PREFIX))


def secret_of(row: rows.Receiver) -> str | None:
    """The secret that was made here, to show it once; None where it was not. Raises Conflict where it is unreadable."""
    secret = channel_of(row.kind).secret
    return unseal(row.sealed_secret) if secret is not None and secret.made else None


def state_of(row: rows.Receiver) -> Document:
    """What became of what was sent: its breaker (see `breaker_of`), failures, messages that wait or failed."""
    messages = row.deliveries
    return {
        "breaker": breaker_of(row),
        "failures_in_a_row": row.failures_in_a_row,
        "open_until": f.iso(row.open_until),
        "waiting": messages.filter(state=rows.DeliveryState.WAITING).count(),
        "failed": messages.filter(state=rows.DeliveryState.FAILED).count(),
        "last_taken_at": f.iso(row.last_taken_at),
        "last_error": row.last_error or None,
        "due_at": f.iso(row.heartbeat_due_at),
    }


def breaker_of(row: rows.Receiver) -> str:
    """`probing`: its pause is over, and the next attempt says whether it closes."""
    if row.open_until is None:
        return "closed"
    return "open" if row.open_until > timezone.now() else "probing"


RECEIVERS = ReceiverNoun()
