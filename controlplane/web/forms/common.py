"""What people type. A form reads text into values; whether they may be is decided by the services."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping
from decimal import Decimal
from itertools import chain
from typing import Any, cast

from django import forms
from django.contrib.auth.forms import AuthenticationForm
from django.core.exceptions import ValidationError
from django.forms.boundfield import BoundField
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from controlplane.alerts.services.policy import WINDOW_MAX_MS
from controlplane.core.changes import REASON_MAX_CHARACTERS
from controlplane.core.errors import Refused
from controlplane.core.fields import default_of
from controlplane.core.models import TargetKind
from controlplane.core.security import address_of
from controlplane.fleet.models import Alias, Model
from controlplane.tenants.models import CachePolicy, PriorityClass, SessionLimits, Tenant
from controlplane.tenants.services.keys import OVERLAP_MAX_SECONDS
from controlplane.tenants.services.temporary_limits import EXPIRES_MAX_SECONDS
from controlplane.tenants.services.tenants import DISPLAY_NAME_MAX_CHARACTERS, TEMPORARY_LIMITS
from controlplane.web.forms.hours import HoursField, named_hours
from controlplane.web.forms.inputs import decimal, numeric
from controlplane.web.forms.long_choices import NameList, shorten
from controlplane.web.refusals import sentence
from controlplane.web.shown.spoken import spoken
from controlplane.web.throttle import begin_attempt, forget_failures
from wire.problems import Problem

# What a form that was opened says of the row that it changes.
OPENED_ON = "opened_on"


class LoginForm(AuthenticationForm):
    """Django's log-in form with a bound on guesses."""

    def clean(self) -> dict[str, Any]:
        name, password = self.cleaned_data.get("username"), self.cleaned_data.get("password")
        if name is None or not password or self.request is None:
            return super().clean()
        address = address_of(self.request)
        wait = begin_attempt(name, address)
        if wait is not None:
            minutes = max(1, round(wait.total_seconds() / 60))
            text = ngettext(
                "Too many failed log-ins for this name or from this address. Try again in %(minutes)d minute.",
                "Too many failed log-ins for this name or from this address. Try again in %(minutes)d minutes.",
                minutes,
            )
            raise ValidationError(text % {"minutes": minutes}, code="throttled")
        cleaned = super().clean()
        forget_failures(name, address)
        return cleaned


class RefusableForm(forms.Form):
    """A form that shows what a service refused at the field it is about.

    `row`: of a form that changes one, what the row says now, by field. The page remembers what it said when it was
    opened (parts/form_errors.html), so that the review can tell who else has changed it since.
    """

    row: Mapping[str, Any] | None = None

    @cached_property
    def name_lists(self) -> list[NameList]:
        """What text fields offer that would have too many choices to show in each (parts/form_errors.html)."""
        return shorten(self.fields)

    def __getitem__(self, name: str) -> BoundField:
        # Here, since choices are filled in after this class has made the form, and each field is read through this.
        self.name_lists  # noqa: B018 - made once
        return super().__getitem__(name)

    @property
    def opened_on(self) -> str:
        """Names what the row said when a person opened the form; empty where there is none."""
        return str(self.data.get(OPENED_ON) or self._row_now())

    @property
    def is_overtaken(self) -> bool:
        """Whether the row has changed since the form was opened."""
        return self.row is not None and self.opened_on != self._row_now()

    def _row_now(self) -> str:
        if self.row is None:
            return ""
        shown = {name: self.row.get(name) for name in self.fields}
        return hashlib.sha256(json.dumps(shown, sort_keys=True, default=str).encode()).hexdigest()[:32]

    def take_refusal(self, refused: Refused) -> None:
        """Put each problem at its field; what fits none at the top."""
        unread = set(self.errors)
        for problem in map(self.at_field, refused.problems):
            if problem.path.strip("/") in unread:
                # What was typed there could not even be read, and the form says so.
                continue
            # A service says /tpm_limit; the check of the whole configuration /tenants/acme/models/some-name.
            field = next((part for part in problem.path.split("/") if part in self.fields), None)
            text = sentence(problem)
            if isinstance(self.fields.get(field or ""), HoursField) and (named := named_hours(problem.path)):
                text = f"{named}: {text}"
            if text not in self.errors.get(field or "", ()):
                self.add_error(field, text if field or not problem.path else f"{problem.path}: {text}")
        if not refused.problems:
            self.add_error(None, spoken(refused.detail))

    def at_field(self, problem: Problem) -> Problem:
        """The problem under the name of its field, where the form calls it otherwise than the service."""
        return problem


class ReasonForm(RefusableForm):
    reason = forms.CharField(
        label=_("Reason"),
        max_length=REASON_MAX_CHARACTERS,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
        help_text=_("Kept in the audit, beside your name."),
    )


def _limit(label: Any, help_text: Any = "") -> forms.IntegerField:
    # The service knows the ranges; here only text becomes a number.
    return forms.IntegerField(label=label, help_text=help_text, required=False, widget=numeric())


class TenantLimitsForm(RefusableForm):
    """The limits that a tenant's own people may lower, named as in the REST call. An empty limit is no limit."""

    tpm_limit = _limit(_("Tokens per minute"), _("Input and output together. Empty: no limit."))
    rpm_limit = _limit(_("Requests per minute"), _("Empty: no limit."))
    max_parallel_requests = _limit(_("Sequences at once"), _("A request with n = 4 counts four. Empty: no limit."))
    max_tokens_cap = _limit(_("Largest max_tokens"), _("Requests for more are cut to this. Empty: the model's own."))
    n_cap = _limit(_("Largest n"), _("Answers per request. Empty: no limit."))
    daily_token_budget = _limit(
        _("Tokens per day"), _("Of a calendar day in the time zone. Refused until midnight once used. Empty: no limit.")
    )

    def values(self) -> dict[str, Any]:
        """The fields as the service takes them: null is not set."""
        return {
            name: None if value in ("", []) else value for name, value in self.cleaned_data.items() if name != "name"
        }


class TenantForm(TenantLimitsForm):
    """All fields of a tenant. What it offers to choose from is of the whole fleet."""

    display_name = forms.CharField(
        label=_("Display name"),
        help_text=_("What people call it, in any script. Empty: its name."),
        max_length=DISPLAY_NAME_MAX_CHARACTERS,
        required=False,
    )
    time_zone = forms.CharField(
        label=_("Time zone"), help_text=_("An IANA name, such as Europe/Istanbul. Empty: UTC."), required=False
    )
    schedule = HoursField(
        label=_("Other limits by the hour"),
        help_text=_(
            "One a line, by the clock of the time zone, such as: nights 22:00-06:30 monday,friday tpm_limit=90000. "
            "Without days: every day."
        ),
    )
    weight = forms.IntegerField(
        label=_("Weight"),
        help_text=_("Share of a busy pool, against the other tenants' weights."),
        widget=numeric(),
    )
    models = forms.MultipleChoiceField(
        label=_("Models"),
        help_text=_("None ticked: all are allowed."),
        required=False,
        widget=forms.CheckboxSelectMultiple,
    )
    priority_classes = forms.MultipleChoiceField(
        label=_("Priority classes"),
        help_text=_("None ticked: all are allowed."),
        required=False,
        widget=forms.CheckboxSelectMultiple,
    )
    default_priority_class = forms.ChoiceField(label=_("Default priority class"), required=False)
    session_limits = forms.ChoiceField(label=_("Session limits"), required=False)
    cache_policy = forms.ChoiceField(label=_("Cache policy"), required=False)
    blocked = forms.BooleanField(label=_("Blocked: every request of this tenant is refused"), required=False)

    # A new one's is the only form that has a name.
    field_order = ("name", "display_name")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        classes = list(PriorityClass.objects.order_by("rank", "name").values_list("name", flat=True))
        names = (noun.objects.values_list("name", flat=True) for noun in (Model, Alias))
        self._offer("models", sorted(chain(*names)))
        self._offer("priority_classes", classes)
        self._offer("default_priority_class", classes, none=_("none"))
        for field, row in (("session_limits", SessionLimits), ("cache_policy", CachePolicy)):
            self._offer(field, row._default_manager.order_by("name").values_list("name", flat=True), none=_("none"))

    def _offer(self, field: str, names: Iterable[str], none: Any = None) -> None:
        chooser = cast(forms.ChoiceField, self.fields[field])
        chooser.choices = [*([("", none)] if none is not None else []), *((name, name) for name in names)]

    def values(self) -> dict[str, Any]:
        """As of every form of a tenant; a display name that is not set is empty."""
        values = super().values()
        return {**values, "display_name": values["display_name"] or ""} if "display_name" in values else values

    def clean_time_zone(self) -> str:
        typed: str = self.cleaned_data["time_zone"]
        return typed or str(default_of(Tenant, "time_zone"))


class NewTenantForm(TenantForm):
    name = forms.CharField(label=_("Name"), help_text=_("Lower case letters, digits, '.', '_' and '-'."))


class OnceForm(RefusableForm):
    """A form without a review. It is carried out once: `form_id` becomes the name of its change."""

    form_id = forms.UUIDField(widget=forms.HiddenInput, initial=uuid.uuid4)

    @property
    def change_id(self) -> uuid.UUID | None:
        """As it was sent, whatever else the form holds; None where it names none."""
        try:
            return cast(uuid.UUID, self.fields["form_id"].clean(self["form_id"].value()))
        except ValidationError:
            return None


class SecretForm(OnceForm, ReasonForm):
    """A form that takes or makes a secret, which no review may show."""


class NewKeyForm(SecretForm):
    label = forms.CharField(
        label=_("Label"),
        max_length=100,
        required=False,
        help_text=_("Where it is used, such as the name of a service."),
    )
    days = forms.IntegerField(
        label=_("Days until it expires"),
        required=False,
        min_value=1,
        max_value=3650,
        widget=numeric(),
        help_text=_("Empty: never."),
    )
    field_order = ("label", "days", "reason")


class JoinTokenForm(SecretForm):
    kind = forms.ChoiceField(label=_("Kind"), choices=TargetKind.choices)
    name = forms.CharField(label=_("Name"), required=False, help_text=_("Empty: the process that joins names itself."))
    field_order = ("kind", "name", "reason")


# Of a number that is typed: no unit here has values as long.
_TYPED_MAX_DIGITS = 25


class ScaledField(forms.DecimalField):
    """A whole number of small units, typed in larger ones: per mille as percent, milliseconds as seconds."""

    def __init__(self, scale: int, **options: Any) -> None:
        # More, such as 1e999999999, cannot be reckoned with or written down.
        options.setdefault("max_digits", _TYPED_MAX_DIGITS)
        super().__init__(widget=decimal(), **options)
        self._scale = scale

    def clean(self, value: Any) -> int | None:
        typed = super().clean(value)
        return None if typed is None else round(typed * self._scale)

    def prepare_value(self, value: Any) -> Any:
        # Exact: a form that is sent as it came must change nothing.
        return f"{Decimal(value) / self._scale:f}" if isinstance(value, int) else value


class RotateKeyForm(SecretForm):
    overlap_seconds = ScaledField(
        3600,
        label=_("Hours for which the old key works on"),
        min_value=0,
        max_value=OVERLAP_MAX_SECONDS // 3600,
        decimal_places=2,
        help_text=_("Time to bring the new key to where the old one is used. 0: it ends at once."),
    )
    field_order = ("overlap_seconds", "reason")


class TemporaryLimitsForm(RefusableForm):
    """Limits for a time, named as in the REST call. An empty one stays as the tenant has it."""

    tpm_limit = _limit(_("Tokens per minute"), _("Empty: as it is."))
    rpm_limit = _limit(_("Requests per minute"), _("Empty: as it is."))
    max_parallel_requests = _limit(_("Sequences at once"), _("Empty: as it is."))
    daily_token_budget = _limit(_("Tokens per day"), _("Empty: as it is."))
    expires_in_seconds = ScaledField(
        3600,
        label=_("For so many hours"),
        min_value=Decimal("0.01"),
        max_value=EXPIRES_MAX_SECONDS // 3600,
        decimal_places=2,
        help_text=_("Then the tenant's own limits hold again, at every gateway by itself."),
    )

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if not self.errors and all(cleaned[limit] is None for limit in TEMPORARY_LIMITS):
            raise ValidationError(_("Give at least one limit."), code="one_of")
        return cleaned


class PolicyForm(RefusableForm):
    """The fields of the cordon policy, by the names and in the units of its service."""

    enabled = forms.BooleanField(label=_("On: a critical hardware event cordons its node by itself"), required=False)
    max_nodes_permille = ScaledField(
        10,
        label=_("Share of the nodes, at most (%)"),
        min_value=0,
        max_value=100,
        decimal_places=1,
        help_text=_("Beyond it a person decides: a fault in what reads the GPUs must not empty the fleet."),
    )
    min_nodes = forms.IntegerField(
        label=_("Nodes, always allowed"),
        min_value=0,
        max_value=100_000,
        widget=numeric(),
        help_text=_("So that the share does not forbid all in a small fleet."),
    )
    window_ms = ScaledField(
        1000,
        label=_("Counted over (seconds)"),
        min_value=1,
        max_value=WINDOW_MAX_MS // 1000,
        decimal_places=3,
        help_text=_("Cordons of the policy that are older than this count no longer."),
    )
