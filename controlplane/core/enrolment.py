"""The only writer of targets and of the join tokens that make them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated, Literal

from django.utils import timezone

from controlplane import settings_rows as rows
from controlplane.core import fields as f
from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import Conflict, Forbidden, JoinTokenExpired, NotFound, ProtocolNotServed, Unauthenticated
from controlplane.core.models import JoinToken, Target
from controlplane.core.nouns import PAGE_ROWS, page_of
from controlplane.core.reported import reported_text
from controlplane.core.tokens import new_token, token_hash
from wire import PROTOCOL, SERVED_PROTOCOLS
from wire.canonical import Document
from wire.messages import EnrolRequest
from wire.problems import Problem

NOUN, JOIN_NOUN = "target", "join token"
JOIN_PREFIX, TARGET_PREFIX = "hwj", "hwg"


class JoinTokenFields(f.Fields):
    """What a join token is good for. `name` null: the process chooses its name."""

    kind: Literal["gateway", "node"]
    name: Annotated[str, f.LIKE_NAME] | None = None


def check_protocol(version: str | int | None) -> None:
    """Raises ProtocolNotServed, naming the served versions. A caller that names none speaks the newest."""
    if str(PROTOCOL if version is None else version) not in map(str, SERVED_PROTOCOLS):
        served = ", ".join(map(str, SERVED_PROTOCOLS))
        raise ProtocolNotServed(
            f"protocol {str(version)[:20]!r} is not served here; served: {served}",
            [Problem("/protocol", "protocol", f"speak one of {served}")],
        )


def describe(target: Target) -> Document:
    """The public form: never a token or its hash."""
    return {
        "id": target.pk,
        "kind": target.kind,
        "name": target.name,
        "version": target.version,
        "protocol": target.protocol,
        "enrolled_at": f.iso(target.enrolled_at),
        "token_expires_at": f.iso(target.token_expires_at),
        "last_seen_at": f.iso(target.last_seen_at),
        "revoked_at": f.iso(target.revoked_at),
    }


def describe_join_token(row: JoinToken) -> Document:
    return {
        "id": row.pk,
        "kind": row.kind,
        "name": row.target_name or None,
        "created_by": row.created_by,
        "created_at": f.iso(row.created_at),
        "expires_at": f.iso(row.expires_at),
        "used_at": f.iso(row.used_at),
    }


def page(limit: int = PAGE_ROWS, after: int = 0) -> tuple[list[Target], int | None]:
    """Targets, revoked ones too, in the order of their first enrolment."""
    return page_of(Target.objects.filter(pk__gt=after).order_by("pk"), limit, lambda target: target.pk)


def create_join_token(unit: UnitOfWork, kind: str, name: str | None = "") -> tuple[JoinToken, str]:
    """A new join token and its secret, which is nowhere stored. It is good for one target, within the hour."""
    fields = f.read(JoinTokenFields, {"kind": kind, "name": name or None})
    secret = new_token(JOIN_PREFIX)
    row = JoinToken.objects.create(
        kind=fields.kind,
        target_name=fields.name or "",
        token_hash=token_hash(secret),
        created_by=unit.actor.name,
        expires_at=timezone.now() + timedelta(minutes=rows.JOIN_TOKEN_MINUTES.read()),
    )
    unit.record(JOIN_NOUN, str(row.pk), None, describe_join_token(row))
    return row, secret


def is_enrolled(kind: str, name: str) -> bool:
    """Whether a target has that name now, which a join token made for it would replace."""
    return Target.objects.filter(kind=kind, name=name, revoked_at=None).exists()


def enrol(unit: UnitOfWork, request: EnrolRequest, connected: Callable[[Target], bool]) -> tuple[Target, str]:
    """Make the target, or give one that there is to a new process; returns it and its token.

    The process that held the name before is cut off: a lost machine can be replaced. While it is `connected` that
    takes a join token made for this very name, so that nobody takes a name over by mistake. Raises ProtocolNotServed,
    Unauthenticated (unknown join token), Conflict (token used, name taken), JoinTokenExpired, Forbidden (good for
    another kind or name).
    """
    check_protocol(request.protocol)
    now = timezone.now()
    join_token = _use_join_token(request, now)
    secret = new_token(TARGET_PREFIX)
    fresh = {
        "version": reported_text(request.version),
        "protocol": request.protocol,
        "token_hash": token_hash(secret),
        "token_expires_at": token_expiry(now),
        "next_token_hash": None,
        "next_token_expires_at": None,
        "last_seen_at": now,
        "last_pushed_at": None,
        "revoked_at": None,
    }
    target = Target.objects.select_for_update().filter(kind=request.kind, name=request.name).first()
    before = describe(target) if target else None
    if target is not None and not join_token.target_name and target.revoked_at is None and connected(target):
        raise Conflict(
            f"a {target.kind} that is connected now has the name {target.name!r}: choose another name, try again once "
            "that one has ended, or ask an admin for a join token made for this name, which replaces it",
            [Problem("/name", "name_taken", "choose another name, or use a join token made for this one")],
            code="name_taken",
        )
    if target is None:
        target = Target.objects.create(kind=request.kind, name=request.name, **fresh)
    else:
        # enrolled_at tells the web processes that streams opened before it are another's.
        displaced = target.token_hash
        Target.objects.filter(pk=target.pk).update(enrolled_at=now, displaced_token_hash=displaced, **fresh)
        target.refresh_from_db()
    unit.record(NOUN, f"{target.kind}/{target.name}", before, describe(target))
    return target, secret


def _use_join_token(request: EnrolRequest, now: datetime) -> JoinToken:
    row = JoinToken.objects.filter(token_hash=token_hash(request.join_token)).first()
    if row is None:
        raise Unauthenticated("this join token is unknown; ask an admin for a new one", code="join_token_unknown")
    if row.kind != request.kind or row.target_name not in ("", request.name):
        meant = f"the {row.kind} {row.target_name!r}" if row.target_name else f"a {row.kind}"
        raise Forbidden(
            f"this join token is for {meant}, not for the {request.kind} {request.name!r}", code="join_token_other"
        )
    if row.used_at is None and row.expires_at <= now:
        raise JoinTokenExpired("this join token has expired; ask an admin for a new one")
    # Of two processes that come with the same token at once, one changes the row.
    if not JoinToken.objects.filter(pk=row.pk, used_at=None).update(used_at=now):
        raise Conflict("this join token was used already; ask an admin for a new one", code="join_token_used")
    return row


def token_expiry(now: datetime) -> datetime:
    return now + timedelta(days=rows.TARGET_TOKEN_DAYS.read())


def rotate(unit: UnitOfWork, target: Target) -> tuple[str, datetime]:
    """A new token for a target and when it expires. The old one is good until the new one is first used.

    Raises Unauthenticated where `target`, as it was read, no longer holds the name: it was enrolled anew or revoked.
    """
    before = describe(target)
    secret, expires_at = new_token(TARGET_PREFIX), token_expiry(timezone.now())
    same = Target.objects.filter(pk=target.pk, token_hash=target.token_hash, revoked_at=None)
    if not same.update(next_token_hash=token_hash(secret), next_token_expires_at=expires_at):
        raise Unauthenticated("this target token was replaced or revoked meanwhile; enrol again with a new join token")
    unit.record(NOUN, f"{target.kind}/{target.name}", before, {**before, "token_expires_at": f.iso(expires_at)})
    return secret, expires_at


def revoke(unit: UnitOfWork, target_id: int) -> Target:
    """Cut a target off: its token is refused and its stream ends. A second time changes nothing. Raises NotFound."""
    target = Target.objects.select_for_update().filter(pk=target_id).first()
    if target is None:
        raise NotFound(f"there is no target {target_id}")
    before = describe(target)
    target.revoked_at = target.revoked_at or timezone.now()
    target.save(update_fields=["revoked_at"])
    unit.record(NOUN, f"{target.kind}/{target.name}", before, describe(target))
    return target
