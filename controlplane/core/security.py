"""Who is calling: people by session or API token, targets by their own token. Used by every app's router."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NoReturn

from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import CsrfViewMiddleware
from django.utils import timezone
from ninja.security.base import AuthBase

from controlplane.core import oidc_rows, scope
from controlplane.core.changes import Actor
from controlplane.core.errors import Forbidden, Unauthenticated
from controlplane.core.models import ApiToken, Role, Target, User
from controlplane.core.tokens import bearer, token_hash

_USED_STEP = timedelta(minutes=1)


class Caller:
    """A person, directly or through a script, and what counts for this call.

    `tenants`: those that the caller is limited to; None: of the whole fleet. `scopes`: the groups of calls that a
    token may make; None: all of its role.
    """

    def __init__(self, user: User, role: Role, actor: Actor, scopes: frozenset[str] | None = None) -> None:
        self.user, self.role, self.actor, self.scopes = user, role, actor, scopes

    @property
    def tenants(self) -> scope.Tenants:
        return self.actor.tenants

    @classmethod
    def by_log_in(cls, request: HttpRequest, user: User) -> Caller:
        role, entrusted = Role(user.role), user.tenants is not None
        actor = Actor("user", user.username, address_of(request), scope.some(user.tenants), role, entrusted)
        return cls(user, role, actor)


def address_of(request: HttpRequest) -> str:
    return str(request.META.get("REMOTE_ADDR", ""))


def caller_of(request: HttpRequest) -> Caller:
    """The person behind a request. Raises Unauthenticated (no or a bad token, no log-in) or Forbidden (CSRF)."""
    header = request.headers.get("authorization")
    if header is not None:
        return _caller_by_token(request, bearer(header))
    user = request.user
    if not isinstance(user, User) or not user.is_active:
        raise Unauthenticated("log in, or send an API token as 'Authorization: Bearer …'")
    if request.method not in {"GET", "HEAD", "OPTIONS"}:
        _check_csrf(request)
    return Caller.by_log_in(request, user)


def _caller_by_token(request: HttpRequest, token: str | None) -> Caller:
    row = (
        ApiToken.objects.select_related("user")
        .filter(
            token_hash=token_hash(token or ""), revoked_at=None, expires_at__gt=timezone.now(), user__is_active=True
        )
        .first()
    )
    if row is None:
        raise Unauthenticated(
            "this API token is unknown, revoked or expired; make a new one with `headworks create-token NAME LABEL "
            "--role ROLE` or POST /api/v1/api-tokens"
        )
    _check_freshness(row.user)
    _note_use(row)
    role = min(Role(row.role), Role(row.user.role), key=list(Role).index)
    tenants = scope.both(scope.some(row.tenants), scope.some(row.user.tenants))
    name, entrusted = f"{row.user.username}/{row.name}", row.user.tenants is not None
    actor = Actor("token", name, address_of(request), tenants, role, entrusted)
    return Caller(row.user, role, actor, scope.some(row.scopes))


def _note_use(row: ApiToken) -> None:
    """So that people see which tokens nobody needs any more; the calls of a minute cost one write."""
    now = timezone.now()
    if row.last_used_at is None or not timedelta() <= now - row.last_used_at < _USED_STEP:
        ApiToken.objects.filter(pk=row.pk).update(last_used_at=now)


def _check_freshness(user: User) -> None:
    """Whoever was removed at the OpenID provider never logs in again, and so neither may the scripts go on for ever."""
    if user.oidc_issuer is None:
        return
    days = oidc_rows.TOKEN_DAYS.read()
    if user.last_login is None or user.last_login <= timezone.now() - timedelta(days=days):
        raise Unauthenticated(
            f"the API tokens of {user.username} rest, since their owner has not logged in by the OpenID provider for "
            f"{days} days (HEADWORKS_OIDC_TOKEN_DAYS); log in once and they work again",
            code="log_in_first",
        )


def _check_csrf(request: HttpRequest) -> None:
    # Ninja's views are exempt, since scripts with tokens call them; a browser's session is not.
    check = _CsrfCheck(_no_view)
    check.process_request(request)
    check.process_view(request, _no_view, (), {})


class _CsrfCheck(CsrfViewMiddleware):
    """Django's check, answered as every other refusal of the API instead of with a page."""

    def _reject(self, request: HttpRequest, reason: str) -> NoReturn:
        raise Forbidden(f"{reason.rstrip('.')}; send the CSRF cookie's token as X-CSRFToken", code="csrf")


def _no_view(request: HttpRequest) -> HttpResponse:
    """Stands for a view that is not exempt from the check, which is all that the check asks of it."""
    return HttpResponse()


class Needs(AuthBase):
    """Ninja's `auth=Needs(Role.OPERATOR)`: the caller lands in `request.auth`.

    `judge`: what people of some tenants may reach of the call; None: it is closed to them. `tag`: the scope that a
    token needs, where the call is no REST call, whose scopes are its tags.
    """

    openapi_type, openapi_scheme = "http", "bearer"

    def __init__(self, role: Role, *, judge: scope.Judge | None = None, tag: str = "") -> None:
        super().__init__()
        self.role, self.judge, self.tag = role, judge, tag

    def within(self, judge: scope.Judge) -> Needs:
        """The same, open to people of some tenants for what `judge` lets them reach."""
        return Needs(self.role, judge=judge, tag=self.tag)

    def __call__(self, request: HttpRequest) -> Caller:
        caller = self._covered(caller_of(request))
        scope.check_token_scope(caller.scopes, (self.tag,) if self.tag else scope.tags_of(request))
        if caller.tenants is not None and self.judge is not None:
            match = request.resolver_match
            self.judge(caller.tenants, {} if match is None else match.kwargs)
        return caller

    def by_token(self, request: HttpRequest) -> Caller:
        """The same by API token alone, where nothing has looked for a session, nor for the call, yet."""
        return self._covered(_caller_by_token(request, bearer(request.headers.get("authorization"))))

    def _covered(self, caller: Caller) -> Caller:
        if not caller.role.covers(self.role):
            raise Forbidden(f"this needs the role {self.role.value}; yours is {caller.role.value}")
        if caller.tenants is not None and self.judge is None:
            raise scope.tenant_scope(caller.tenants)
        return caller


def caller_in(request: HttpRequest) -> Caller:
    """The caller of a route that has `auth=Needs(…)`."""
    caller: Caller = request.auth  # type: ignore[attr-defined]
    return caller


viewer, operator, admin = (Needs(role) for role in Role)
metrics_reader = Needs(Role.VIEWER, tag=scope.METRICS)


def target_of(request: HttpRequest) -> Target:
    """The enrolled target behind a request. Raises Unauthenticated (unknown, expired) or Forbidden (revoked).

    A rotated token that is used for the first time takes the place of the old one.
    """
    token = bearer(request.headers.get("authorization"))
    if token is None:
        raise Unauthenticated("send the target's token as 'Authorization: Bearer …'")
    digest = token_hash(token)
    known = Target.objects.filter(token_hash=digest)
    target = known.first()
    if target is None:
        rotated = Target.objects.filter(next_token_hash=digest)
        # An unknown token writes nothing: whoever sends many would hold up those who write.
        if rotated.exists():
            rotated.update(
                token_hash=digest,
                next_token_hash=None,
                token_expires_at=F("next_token_expires_at"),
                next_token_expires_at=None,
            )
        # Of two first uses at once one changes the row; both find it changed.
        target = known.first()
    if target is None:
        displaced = Target.objects.filter(displaced_token_hash=digest).first()
        if displaced is not None:
            raise Unauthenticated(
                f"another process enrolled as {displaced.kind} {displaced.name!r} at "
                f"{displaced.enrolled_at:%Y-%m-%d %H:%M:%S} UTC, so this token is of no more use; enrol again with a "
                "new join token, under another name if both shall run",
                code="displaced",
            )
        raise Unauthenticated("this target token is unknown; enrol again with a new join token")
    if target.revoked_at is not None:
        raise Forbidden("this target was revoked; enrol again with a new join token", code="revoked")
    if target.token_expires_at <= timezone.now():
        raise Unauthenticated("this target token has expired; enrol again with a new join token", code="expired")
    return target


def calling_target(request: HttpRequest) -> Target:
    """The target of a route that has `auth=TargetAuth()`."""
    target: Target = request.auth  # type: ignore[attr-defined]
    return target


class TargetAuth(AuthBase):
    """Ninja's `auth=TargetAuth()`: the enrolled target lands in `request.auth`."""

    openapi_type, openapi_scheme = "http", "bearer"

    def __call__(self, request: HttpRequest) -> Any:
        return target_of(request)
