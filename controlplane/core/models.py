"""Rows that every other app leans on: people, tokens, targets, audit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from django.contrib.auth.models import AbstractUser
from django.db import models
from django.utils.translation import gettext_lazy as _


class Role(models.TextChoices):
    """Each role may do what the ones before it may."""

    VIEWER = "viewer", _("viewer")
    OPERATOR = "operator", _("operator")
    ADMIN = "admin", _("admin")

    def covers(self, needed: Role) -> bool:
        order = list(Role)
        return order.index(self) >= order.index(needed)


class User(AbstractUser):
    """A person. `tenants`: names of those that the person is limited to; null: the person is of the whole fleet."""

    role = models.CharField(max_length=16, choices=Role.choices, default=Role.VIEWER)
    tenants = models.JSONField(null=True)
    # Who the person is at the OpenID provider, by which alone a log-in there finds this row; null: has a password here.
    oidc_issuer = models.CharField(max_length=255, null=True)
    oidc_subject = models.CharField(max_length=255, null=True)
    # Another value ends every log-in that was made before.
    sessions_epoch = models.PositiveIntegerField(default=0)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["oidc_issuer", "oidc_subject"], name="one_user_an_oidc_subject")
        ]

    def get_session_auth_hash(self) -> str:
        return f"{super().get_session_auth_hash()}.{self.sessions_epoch}"

    def get_session_auth_fallback_hash(self) -> Iterator[str]:
        return (f"{each}.{self.sessions_epoch}" for each in super().get_session_auth_fallback_hash())


class ApiToken(models.Model):
    """A person's script acts with this, by the lesser of the token's role and its user's.

    `tenants`: as of a user, and never wider than it. `scopes`: the groups of calls that it may make; null: all.
    """

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=63)
    role = models.CharField(max_length=16, choices=Role.choices, default=Role.VIEWER)
    tenants = models.JSONField(null=True)
    scopes = models.JSONField(null=True)
    token_hash = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True)
    # To a minute; null: never.
    last_used_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["user", "name"], name="one_api_token_a_name")]


class TargetKind(models.TextChoices):
    GATEWAY = "gateway", _("gateway")
    NODE = "node", _("node")


class JoinToken(models.Model):
    """Lets one process become one target, once."""

    kind = models.CharField(max_length=16, choices=TargetKind.choices)
    # Empty: the process chooses its name.
    target_name = models.CharField(max_length=63, blank=True)
    token_hash = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.CharField(max_length=150)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)


class Target(models.Model):
    """A gateway or a node's agent: who it is. What it runs is `configs.TargetState`."""

    kind = models.CharField(max_length=16, choices=TargetKind.choices)
    name = models.CharField(max_length=63)
    version = models.CharField(max_length=64)
    protocol = models.PositiveIntegerField()
    token_hash = models.CharField(max_length=64, unique=True)
    # Set while a rotated token has not been used yet: both are good until then.
    next_token_hash = models.CharField(max_length=64, unique=True, null=True)
    # Of the process that held the name before; only to tell it why it is refused.
    displaced_token_hash = models.CharField(max_length=64, db_index=True, null=True)
    next_token_expires_at = models.DateTimeField(null=True)
    token_expires_at = models.DateTimeField()
    enrolled_at = models.DateTimeField(auto_now_add=True)
    last_seen_at = models.DateTimeField(null=True)
    # When samples last came from it, to some seconds; null: never since it enrolled.
    last_pushed_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True, db_index=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["kind", "name"], name="one_target_a_kind_and_name")]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class FieldKeyCanary(models.Model):
    """One row, sealed at the first start: a process whose field key cannot open it has a wrong one and must not run."""

    sealed = models.CharField(max_length=255)


CALL_SHOWN_CHARACTERS = 200


class IdempotentAnswer(models.Model):
    """What a write answered under its caller's Idempotency-Key, for when the same request comes again."""

    caller = models.CharField(max_length=255)
    key = models.CharField(max_length=200)
    # Method and path, for people; what tells requests apart is the digest of all that they ask for.
    call = models.CharField(max_length=CALL_SHOWN_CHARACTERS)
    request_sha256 = models.CharField(max_length=64)
    answer = models.TextField()
    # Encrypted, since it holds a secret.
    is_sealed = models.BooleanField()
    size_bytes = models.PositiveBigIntegerField()
    at = models.DateTimeField(db_index=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["caller", "key"], name="one_answer_a_caller_and_key")]


class AppendOnly(RuntimeError):
    """Audit entries are written once and never changed or removed by the program."""


class AuditEntry(models.Model):
    """Who changed what, from where, when, why. Entries of one unit of work share a `change_id`.

    The database refuses to change or remove one too (core.append_only). SQLite drops that guard with the table when a
    migration alters a column of it; such a migration sets it anew.
    """

    change_id = models.UUIDField(db_index=True)
    at = models.DateTimeField(db_index=True)
    actor_kind = models.CharField(max_length=16)
    actor = models.CharField(max_length=150)
    address = models.CharField(max_length=64, blank=True)
    noun = models.CharField(max_length=32)
    key = models.CharField(max_length=200)
    action = models.CharField(max_length=16)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    reason = models.CharField(max_length=500)
    # The one field that is filled in later, once, by the publisher; null where nothing of it is published.
    touches_config = models.BooleanField(default=False)
    revision = models.PositiveBigIntegerField(null=True, db_index=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["noun", "key"]),
            models.Index(
                fields=["id"], name="audit_unpublished", condition=models.Q(touches_config=True, revision__isnull=True)
            ),
        ]

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise AppendOnly("an audit entry cannot be changed")
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        raise AppendOnly("an audit entry cannot be removed")
