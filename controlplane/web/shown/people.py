"""What the pages of people show of a user and of a token: how they stand, and what a change would end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from controlplane.core import oidc_rows
from controlplane.core.models import ApiToken, User
from controlplane.core.sessions import LogIn, open_log_ins
from controlplane.web.scopes import scope_label


class PersonLine(NamedTuple):
    """`log_ins` and `tokens`: how many are open, and good."""

    row: User
    log_ins: int
    tokens: int

    @property
    def state(self) -> str:
        return "active" if self.row.is_active else "off"


class TokenLine(NamedTuple):
    row: ApiToken

    @property
    def state(self) -> str:
        if self.row.revoked_at is not None:
            return "revoked"
        if self.row.expires_at <= timezone.now():
            return "expired"
        if not self.row.user.is_active:
            return "off"
        return "resting" if _rests(self.row.user) else "active"

    @property
    def calls(self) -> list[str]:
        """The groups of calls that it is limited to, in words."""
        return [scope_label(scope) for scope in self.row.scopes or ()]

    @property
    def may_be_revoked(self) -> bool:
        return self.state in ("active", "resting", "off")


def _rests(user: User) -> bool:
    """As `core.security` judges it: who logs in by the provider must have done so lately."""
    if user.oidc_issuer is None:
        return False
    oldest = timezone.now() - timedelta(days=oidc_rows.TOKEN_DAYS.read())
    return user.last_login is None or user.last_login <= oldest


def person_lines(rows: Sequence[User]) -> list[PersonLine]:
    log_ins, tokens = open_log_ins(), _good_tokens(rows)
    return [PersonLine(row, len(log_ins.get(row.pk, ())), tokens[row.pk]) for row in rows]


def token_lines(rows: Iterable[ApiToken]) -> list[TokenLine]:
    return [TokenLine(row) for row in rows]


def _good_tokens(rows: Sequence[User]) -> Counter[int]:
    good = ApiToken.objects.filter(user__in=rows, revoked_at=None, expires_at__gt=timezone.now())
    return Counter(good.values_list("user_id", flat=True))


def log_ins_of(user: User) -> list[LogIn]:
    return open_log_ins().get(user.pk, [])


def what_ends(user: User, changes: Mapping[str, Any]) -> str:
    """What a change of a user ends at once and what goes on, as a note beside it."""
    log_ins, tokens = len(log_ins_of(user)), _good_tokens([user])[user.pk]
    shown = {"name": user.username, "log_ins": log_ins_in_words(log_ins), "tokens": tokens_in_words(tokens)}
    if changes.get("is_active") is False:
        said = [
            _("%(name)s can log in no longer."),
            _("Ended at once: %(log_ins)s, %(tokens)s.") if log_ins or tokens else "",
        ]
    elif "password" in changes:
        said = [
            _("The old password is of no more use."),
            _("Ended at once: %(log_ins)s.") if log_ins else "",
            _("Still good: %(tokens)s.") if tokens else "",
        ]
    elif changes.keys() & {"role", "tenants"}:
        said = [
            _("Ended at once: %(log_ins)s; %(name)s logs in again.") if log_ins else "",
            _("Still good, with no more than the new role and tenants: %(tokens)s.") if tokens else "",
        ]
    elif changes.get("is_active"):
        said = [_("%(name)s may log in again."), _("Good again: %(tokens)s.") if tokens else ""]
    else:
        said = []
    return " ".join(sentence % shown for sentence in said if sentence)


def log_ins_in_words(count: int) -> str:
    return ngettext("%(count)d log-in", "%(count)d log-ins", count) % {"count": count}


def tokens_in_words(count: int) -> str:
    return ngettext("%(count)d API token", "%(count)d API tokens", count) % {"count": count}
