"""The forms of receivers: the fields of each kind, named as in the REST call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from controlplane.alerts.models import ReceiverKind, Severity
from controlplane.alerts.receivers.registry import channel_of
from controlplane.web.forms.common import RefusableForm, SecretForm
from controlplane.web.forms.inputs import numeric

_UNSEEN = {"autocomplete": "off", "spellcheck": "false"}


class LinesField(forms.CharField):
    """A list, one a line."""

    widget = forms.Textarea(attrs={"rows": 3})

    def clean(self, value: Any) -> list[str]:
        return [line.strip() for line in (super().clean(value) or "").splitlines() if line.strip()]

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value


def _address(help_text: Any) -> forms.CharField:
    return forms.CharField(label=_("Address"), help_text=help_text)


def _seconds(label: Any, initial: int, help_text: Any) -> forms.IntegerField:
    return forms.IntegerField(label=label, initial=initial, help_text=help_text, widget=numeric())


# By kind: its address, where it has one, and its settings.
FIELDS: Mapping[str, Mapping[str, forms.Field]] = {
    ReceiverKind.WEBHOOK: {
        "url": _address(_("http(s)://host[:port]/path. Every viewer sees it: it may hold no password.")),
    },
    ReceiverKind.PAGERDUTY: {
        "url": _address(_("Of an account in the EU: https://events.eu.pagerduty.com.")),
    },
    ReceiverKind.SLACK: {},
    ReceiverKind.TEAMS: {},
    ReceiverKind.OPSGENIE: {
        "url": _address(_("Of an account in the EU: https://api.eu.opsgenie.com.")),
        "teams": LinesField(
            label=_("Teams"), required=False, help_text=_("One a line. Empty: whom the integration calls.")
        ),
    },
    ReceiverKind.EMAIL: {
        "to": LinesField(label=_("To"), help_text=_("Addresses, one a line.")),
    },
    ReceiverKind.APPRISE: {},
    ReceiverKind.ALERTMANAGER: {
        "urls": LinesField(label=_("Addresses"), help_text=_("Of a cluster each, one a line, such as http://am:9093.")),
        "user": forms.CharField(
            label=_("User"), required=False, help_text=_("Then the secret is the password; else a bearer token.")
        ),
        "resend_seconds": _seconds(
            _("Told again every (seconds)"), 60, _("What fires; it ends there after four times as long.")
        ),
    },
    ReceiverKind.HEARTBEAT: {
        "method": forms.ChoiceField(label=_("Method"), choices=[("POST", "POST"), ("GET", "GET")]),
        "interval_seconds": _seconds(_("Every (seconds)"), 60, _("The service calls somebody when it hears nothing.")),
    },
}
SECRETS: Mapping[str, Any] = {
    ReceiverKind.PAGERDUTY: _("Integration key of an Events API v2 integration"),
    ReceiverKind.SLACK: _("URL of the incoming webhook"),
    ReceiverKind.TEAMS: _("URL of the workflow"),
    ReceiverKind.OPSGENIE: _("API key of the integration"),
    ReceiverKind.APPRISE: _("Apprise URL"),
    ReceiverKind.ALERTMANAGER: _("Password or bearer token"),
    ReceiverKind.HEARTBEAT: _("URL that is told that all is well"),
}


class ReceiverForm(RefusableForm):
    """What may be changed of a receiver: all but its name, its kind and its secret."""

    min_severity = forms.ChoiceField(
        label=_("From severity"), choices=Severity.choices, help_text=_("Milder incidents are not sent.")
    )
    send_resolved = forms.BooleanField(label=_("Say too when an incident is over"), required=False)
    rate_limit_per_minute = forms.IntegerField(
        label=_("Messages a minute, at most"),
        initial=0,
        widget=numeric(),
        help_text=_("What is over it waits. 0: as many as there are."),
    )

    def __init__(self, kind: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kind = kind
        if not channel_of(kind).takes_incidents:
            for name in ("min_severity", "send_resolved", "rate_limit_per_minute"):
                del self.fields[name]
        self.of_kind = list(FIELDS[kind])
        # Copies: a form's fields are its own.
        self.fields = {**type("_", (forms.Form,), dict(FIELDS[kind]))().fields, **self.fields}
        if channel_of(kind).url.startswith("https://"):
            self.fields["url"].initial = channel_of(kind).url

    def values(self) -> dict[str, Any]:
        """The fields as the service takes them."""
        given = {name: self.cleaned_data[name] for name in self.of_kind}
        settings = {name: value for name, value in given.items() if name != "url"}
        common = ("min_severity", "send_resolved", "rate_limit_per_minute")
        values = {name: self.cleaned_data[name] for name in common if name in self.fields}
        return {**values, "settings": settings, **({"url": given["url"]} if "url" in given else {})}


def initial_of(described: Mapping[str, Any]) -> dict[str, Any]:
    """What a form of this receiver begins with."""
    return {**described, **described["settings"]}


class GivenSecretForm(SecretForm):
    """A secret that was made elsewhere. It is typed once, and never shown."""

    secret = forms.CharField(
        widget=forms.PasswordInput(attrs=_UNSEEN),
        help_text=_("Kept sealed. Nobody can have it shown again."),
    )
    field_order = ("secret", "reason")

    def __init__(self, kind: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["secret"].label = SECRETS[kind]


class NewReceiverForm(SecretForm, ReceiverForm):
    """All that a receiver of its kind is made with."""

    name = forms.CharField(label=_("Name"), help_text=_("Lower case letters, digits, '.', '_' and '-'."))

    def __init__(self, kind: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(kind, *args, **kwargs)
        secret = channel_of(kind).secret
        self.asks_secret = secret is not None and not secret.made
        if secret is not None and self.asks_secret:
            field = GivenSecretForm(kind).fields["secret"]
            field.required = secret.required
            self.fields["secret"] = field
        self.order_fields(["name", *self.of_kind, "secret", *ReceiverForm.base_fields, "reason"])

    def values(self) -> dict[str, Any]:
        """As the service takes them to make one."""
        secret = {"secret": self.cleaned_data["secret"]} if self.cleaned_data.get("secret") else {}
        return {**super().values(), "kind": self.kind, **secret}
