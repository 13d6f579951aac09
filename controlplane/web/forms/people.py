"""Forms of people: users, their passwords, and the tokens of their scripts."""

from __future__ import annotations

import math
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from controlplane.core.api_tokens import DAYS, DAYS_MAX
from controlplane.core.models import Role, User
from controlplane.core.scope import known_scopes
from controlplane.core.security import address_of
from controlplane.web.forms.alert import LinesField, NounForm
from controlplane.web.forms.common import OnceForm, RefusableForm, SecretForm
from controlplane.web.forms.inputs import numeric
from controlplane.web.own_password import TooManyGuesses, WrongPassword, prove
from controlplane.web.scopes import scope_label

_TENANTS_HELP = _("Names, one a line. None: the whole fleet.")
_PASSWORD_HELP = _("Twelve characters or more; a sentence is easy to keep.")


class _OfPerson(RefusableForm):
    role = forms.ChoiceField(
        label=_("Role"),
        choices=Role.choices,
        help_text=_("A viewer looks, an operator acts, an admin gives keys, people and limits."),
    )
    tenants = LinesField(label=_("Tenants that the person is limited to"), required=False, help_text=_TENANTS_HELP)

    def person(self) -> dict[str, Any]:
        return {"role": self.cleaned_data["role"], "tenants": self.cleaned_data["tenants"] or None}


class UserForm(_OfPerson, NounForm):
    """What may be changed of a person, named as in the REST call."""

    is_active = forms.BooleanField(label=_("May log in, and their scripts may call"), required=False)

    def values(self) -> dict[str, Any]:
        return {**self.person(), "is_active": self.cleaned_data["is_active"]}


class NewUserForm(_OfPerson, SecretForm):
    """A person whose first password is made here."""

    username = forms.CharField(label=_("Name"), help_text=_("Letters, digits and _ . @ + -"))
    field_order = ("username", "role", "tenants", "reason")


class OwnPasswordForm(OnceForm):
    """A person's own. The present one is asked for: who finds an open browser must not take it over."""

    current = forms.CharField(
        label=_("Present password"),
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )
    password = forms.CharField(
        label=_("New password"),
        strip=False,
        help_text=_PASSWORD_HELP,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    again = forms.CharField(
        label=_("New password, once more"),
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )

    def __init__(self, request: HttpRequest, user: User) -> None:
        super().__init__(request.POST or None)
        self._user, self._address = user, address_of(request)

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if self.errors:
            return cleaned
        if cleaned["password"] != cleaned["again"]:
            self.add_error("again", _("This is not the same as above."))
            return cleaned
        try:
            prove(self._user, self._address, cleaned["current"])
        except TooManyGuesses as many:
            raise ValidationError(_too_many(many.wait.total_seconds()), code="throttled") from None
        except WrongPassword:
            self.add_error("current", _("This is not your password."))
        return cleaned


def _too_many(wait_seconds: float) -> str:
    minutes = max(1, math.ceil(wait_seconds / 60))
    text = ngettext(
        "Too many wrong passwords. Try again in %(minutes)d minute.",
        "Too many wrong passwords. Try again in %(minutes)d minutes.",
        minutes,
    )
    return text % {"minutes": minutes}


class NewTokenForm(SecretForm):
    """A token of the person's own scripts, named as in the REST call."""

    name = forms.CharField(label=_("Name"), help_text=_("Which script it is for: a-z, 0-9, '.', '_' and '-'."))
    role = forms.ChoiceField(label=_("Role"), help_text=_("At most yours; what the script needs is enough."))
    tenants = LinesField(
        label=_("Tenants that it is limited to"), required=False, help_text=_("Names, one a line. None: as you are.")
    )
    scopes = forms.MultipleChoiceField(
        label=_("Calls that it may make"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=_("Groups of the REST API. None ticked: all."),
    )
    days = forms.IntegerField(
        label=_("Days until it expires"),
        initial=DAYS,
        min_value=1,
        max_value=DAYS_MAX,
        widget=numeric(),
    )
    field_order = ("name", "role", "days", "tenants", "scopes", "reason")

    def __init__(self, *args: Any, at_most: Role, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        offered = [role for role in Role if at_most.covers(role)]
        self.fields["role"].choices = [(role.value, role.label) for role in offered]  # type: ignore[attr-defined]
        self.fields["scopes"].choices = [(name, scope_label(name)) for name in sorted(known_scopes, key=scope_label)]  # type: ignore[attr-defined]

    def values(self) -> dict[str, Any]:
        named = {name: self.cleaned_data[name] for name in ("name", "role", "days")}
        lists = {name: self.cleaned_data[name] or None for name in ("tenants", "scopes")}
        return {**named, **lists}
