"""Forms of silences, maintenance windows, alert routes and inhibitions, and of what people do about an incident."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django import forms
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from controlplane.alerts.models import AlertRoute, Receiver
from controlplane.alerts.pipeline.silencing import DAYS
from controlplane.core.fields import default_of
from controlplane.core.models import User
from controlplane.web.forms.common import RefusableForm
from controlplane.web.forms.inputs import code
from controlplane.web.forms.rules import DurationField

_MATCHERS_HELP = _('One a line, such as alertname="GpuXid" or pool=~"chat-.*". All of them must match.')
DAY_NAMES = (_("Monday"), _("Tuesday"), _("Wednesday"), _("Thursday"), _("Friday"), _("Saturday"), _("Sunday"))
_UTC = _("UTC, as 2026-06-01 14:30.")
# What a form about something new suggests.
_SILENCE_SUGGESTED = timedelta(hours=4)


class LinesField(forms.CharField):
    """A list of texts, one a line."""

    def __init__(self, **options: Any) -> None:
        widget = code(3)
        super().__init__(widget=widget, **options)

    def clean(self, value: Any) -> list[str]:
        return [line.strip() for line in super().clean(value).splitlines() if line.strip()]

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value


class MomentField(forms.DateTimeField):
    """A time in UTC, as REST takes it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(help_text=_UTC, widget=forms.DateTimeInput(format="%Y-%m-%d %H:%M"), **options)

    def clean(self, value: Any) -> str | None:
        moment = super().clean(value)
        return moment.replace(tzinfo=UTC).isoformat() if moment is not None else None

    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, str) and value.endswith("Z"):
            value = datetime.fromisoformat(value)
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M") if isinstance(value, datetime) else value


class NounForm(RefusableForm):
    """Fields named as in the REST call."""

    def values(self) -> dict[str, Any]:
        return dict(self.cleaned_data)

    @staticmethod
    def suggested() -> dict[str, Any]:
        """What the form of a new one shows."""
        return {}


def _name_field() -> forms.CharField:
    return forms.CharField(label=_("Name"), max_length=63, help_text=_("Lower-case letters, digits, '.', '_' and '-'."))


class SilenceForm(NounForm):
    matchers = LinesField(label=_("Matchers"), help_text=_MATCHERS_HELP)
    starts_at = MomentField(label=_("Starts"))
    ends_at = MomentField(label=_("Ends"))
    comment = forms.CharField(label=_("Comment"), max_length=500)

    @staticmethod
    def suggested() -> dict[str, Any]:
        now = timezone.now()
        return {"starts_at": now, "ends_at": now + _SILENCE_SUGGESTED}


class NewSilenceForm(SilenceForm):
    name = _name_field()
    field_order = ("name",)


class WindowForm(NounForm):
    matchers = LinesField(label=_("Matchers"), help_text=_MATCHERS_HELP)
    days = forms.MultipleChoiceField(
        label=_("Days"), choices=list(zip(DAYS, DAY_NAMES, strict=True)), widget=forms.CheckboxSelectMultiple
    )
    starts = forms.CharField(label=_("Starts"), max_length=5, help_text=_("Such as 22:00."))
    ends = forms.CharField(
        label=_("Ends"), max_length=5, help_text=_("One that does not end after it starts goes on into the next day.")
    )
    time_zone = forms.CharField(label=_("Time zone"), max_length=64, help_text=_("Such as Europe/Istanbul."))
    enabled = forms.BooleanField(label=_("On"), required=False)

    @staticmethod
    def suggested() -> dict[str, Any]:
        return {"time_zone": "UTC", "enabled": True}


class NewWindowForm(WindowForm):
    name = _name_field()
    field_order = ("name",)


def _receivers() -> list[tuple[str, str]]:
    return [(name, name) for name in Receiver.objects.order_by("name").values_list("name", flat=True)]


class AlertRouteForm(NounForm):
    order = forms.IntegerField(label=_("Order"), min_value=0, help_text=_("Routes are tried from the lowest up."))
    matchers = LinesField(
        label=_("Matchers"), required=False, help_text=_("One a line; all of them must match. None: every alert does.")
    )
    receivers = forms.MultipleChoiceField(
        label=_("Receivers"),
        choices=_receivers,
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=_("None chosen: nobody is told."),
    )
    group_by = LinesField(
        label=_("Alerts share an incident by these labels"),
        required=False,
        help_text=_("One a line; ... alone means each alert by itself, none means all in one."),
    )
    group_wait_ms = DurationField(label=_("Wait for others of a new group"), required=False)
    group_interval_ms = DurationField(label=_("Between two messages of news"), required=False)
    repeat_interval_ms = DurationField(label=_("Between two that say the same"), required=False)
    goes_on = forms.BooleanField(label=_("Later routes are tried, too"), required=False)
    enabled = forms.BooleanField(label=_("On"), required=False)

    @staticmethod
    def suggested() -> dict[str, Any]:
        names = ("order", "group_wait_ms", "group_interval_ms", "repeat_interval_ms", "enabled")
        return {**{name: default_of(AlertRoute, name) for name in names}, "group_by": ["alertname", "pool"]}


class NewAlertRouteForm(AlertRouteForm):
    name = _name_field()
    field_order = ("name",)


class InhibitionForm(NounForm):
    source_matchers = LinesField(label=_("While an alert like this fires"), help_text=_MATCHERS_HELP)
    target_matchers = LinesField(label=_("Nobody is told of alerts like this"), help_text=_MATCHERS_HELP)
    equal = LinesField(
        label=_("With the same values of these labels"), required=False, help_text=_("One a line, such as node.")
    )
    enabled = forms.BooleanField(label=_("On"), required=False)

    @staticmethod
    def suggested() -> dict[str, Any]:
        return {"enabled": True, "equal": ["node"]}


class NewInhibitionForm(InhibitionForm):
    name = _name_field()
    field_order = ("name",)


class TryRouteForm(RefusableForm):
    """Which alert is tried."""

    labels = LinesField(label=_("Labels"), help_text=_("One a line, such as alertname=GpuXid and severity=critical."))
    source = forms.ChoiceField(label=_("Told of by"), choices=[("rule", _("a rule")), ("event", _("an event"))])


def _people() -> list[tuple[str, Any]]:
    names = User.objects.filter(is_active=True).order_by("username").values_list("username", flat=True)
    return [("", _("nobody")), *((name, name) for name in names)]


class AssignForm(NounForm):
    assignee = forms.ChoiceField(label=_("Assigned to"), choices=_people, required=False)

    def values(self) -> dict[str, Any]:
        return {"assignee": self.cleaned_data["assignee"] or None}


class SnoozeForm(NounForm):
    until = MomentField(label=_("Snoozed until"), required=False)

    @staticmethod
    def suggested() -> dict[str, Any]:
        return {"until": timezone.now() + _SILENCE_SUGGESTED}


class CommentForm(NounForm):
    text = forms.CharField(label=_("Comment"), max_length=1000, widget=forms.Textarea(attrs={"rows": 3}))
