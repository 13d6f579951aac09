"""The only writer of receivers: where incidents are sent. They are no part of the configuration."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from controlplane import settings_rows
from controlplane.alerts import models as rows
from controlplane.alerts.addresses import URL_MAX_CHARACTERS, url_refusal
from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.core.nouns import Noun
from controlplane.core.sealed import seal, sealed_at, unseal
from controlplane.core.tokens import new_token
from wire.canonical import Document
from wire.problems import Problem

SECRET_PREFIX = "hws"  # noqa: S105


def _reachable(url: str) -> str:
    if refusal := url_refusal(url, settings_rows.WEBHOOK_ALLOWED_NETWORKS.read()):
        raise PydanticCustomError("url", "{message}", {"message": refusal})
    return url


Url = Annotated[f.Text, Field(max_length=URL_MAX_CHARACTERS), AfterValidator(_reachable)]


class ReceiverFields(f.Fields):
    """`url`: http(s)://host[:port]/path, which every viewer sees. `send_resolved`: say too when an incident ends."""

    url: Url
    min_severity: Annotated[rows.Severity, Field(strict=False)] = f.default_of(rows.Receiver, "min_severity")
    send_resolved: bool = f.default_of(rows.Receiver, "send_resolved")
    enabled: bool = f.default_of(rows.Receiver, "enabled")


class ReceiverNoun(Noun[rows.Receiver]):
    noun = "receiver"
    row = rows.Receiver
    fields = ReceiverFields

    def describe(self, row: rows.Receiver) -> Document:
        return {
            "name": row.name,
            "url": row.url,
            "min_severity": row.min_severity,
            "send_resolved": row.send_resolved,
            "enabled": row.enabled,
            "secret_made_at": f.iso(sealed_at(row.sealed_secret)),
        }

    def assign(self, row: rows.Receiver, values: Document) -> list[Problem]:
        if not row.sealed_secret:
            row.sealed_secret = _new_sealed_secret()
        return super().assign(row, values)

    def touch(self, unit: UnitOfWork, row: rows.Receiver, name: str) -> None:
        """Nothing of it is compiled: targets send nothing to receivers."""

    def rotate_secret(self, unit: UnitOfWork, name: str) -> rows.Receiver:
        """Sign with a new secret from now on, messages that wait included. The old one is of no more use."""
        row = self.lock(name)
        before: dict[str, Any] = {**self.describe(row), "secret_rotated": False}
        row.sealed_secret = _new_sealed_secret()
        row.save(update_fields=["sealed_secret"])
        # Two within a second have one time: the audit must see that it changed.
        unit.record(self.noun, name, before, {**self.describe(row), "secret_rotated": True})
        return row


def _new_sealed_secret() -> str:
    return seal(new_token(SECRET_PREFIX))


def secret_of(row: rows.Receiver) -> str:
    """The signing secret, to show it once. Raises Conflict where it cannot be read."""
    return unseal(row.sealed_secret)


RECEIVERS = ReceiverNoun()
