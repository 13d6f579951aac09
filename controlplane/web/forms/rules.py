"""Forms of alerting rules: one rule by its fields, and a whole rule file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from controlplane.alerts.models import Severity
from controlplane.alerts.rule_file.durations import milliseconds, written
from controlplane.alerts.rule_file.text import read_yaml
from controlplane.core.errors import Refused
from controlplane.core.yaml_text import write_yaml
from controlplane.web.forms.common import RefusableForm
from controlplane.web.forms.inputs import code


class DurationField(forms.CharField):
    """Milliseconds, typed as Prometheus writes durations."""

    def clean(self, value: Any) -> int:
        typed = super().clean(value)
        try:
            return milliseconds(typed) if typed else 0
        except ValueError as error:
            raise ValidationError(str(error)) from error

    def prepare_value(self, value: Any) -> Any:
        return written(value) if isinstance(value, int) else value


class TextsField(forms.CharField):
    """A map of texts, typed as YAML."""

    def __init__(self, rows: int, **options: Any) -> None:
        widget = code(rows, wrap="off")
        super().__init__(required=False, strip=False, widget=widget, **options)

    def clean(self, value: Any) -> dict[str, str]:
        typed = super().clean(value)
        try:
            read = read_yaml(typed.encode()) if typed.strip() else {}
        except Refused as refused:
            raise ValidationError(refused.detail) from refused
        if not isinstance(read, Mapping):
            raise ValidationError(_("Give one name and its text a line, such as team: serving."))
        return dict(read)

    def prepare_value(self, value: Any) -> Any:
        return (write_yaml(dict(value)) if value else "") if isinstance(value, Mapping) else value


class AlertRuleForm(RefusableForm):
    """The fields of a rule, named as in the REST call."""

    group = forms.CharField(label=_("Group"), required=False, help_text=_("Where it stands in a rule file."))
    expr = forms.CharField(
        label=_("Expression (PromQL)"),
        strip=False,
        widget=code(5, wrap="off"),
        help_text=_("Each series of its result is an alert, so it mostly ends in a comparison."),
    )
    for_ms = DurationField(
        label=_("For"), required=False, help_text=_("How long it must hold, such as 5m. Empty: it fires at once.")
    )
    keep_firing_for_ms = DurationField(
        label=_("Keep firing for"), required=False, help_text=_("How long it fires on after it held last.")
    )
    severity = forms.ChoiceField(label=_("Severity"), choices=Severity.choices)
    labels = TextsField(3, label=_("Labels (YAML)"), help_text=_("Beside those of the series, such as team: serving."))
    annotations = TextsField(
        6,
        label=_("Annotations (YAML)"),
        help_text=_("summary is the title; {{ $labels.name }} and {{ $value | humanize }} are put in."),
    )
    alertname = forms.CharField(label="alertname", required=False, help_text=_("Empty: the rule's name."))
    enabled = forms.BooleanField(label=_("On: it is evaluated"), required=False)

    def values(self) -> dict[str, Any]:
        """The fields as the service takes them."""
        return {field: value for field, value in self.cleaned_data.items() if field != "name"}


class NewAlertRuleForm(AlertRuleForm):
    name = forms.CharField(label=_("Name"), help_text=_("Letters, digits and _ . : -, such as KvCacheFull."))

    field_order = ("name",)


class RulesFileForm(RefusableForm):
    rule_file = forms.CharField(
        label=_("Rules (YAML)"),
        strip=False,
        widget=code(24, wrap="off"),
        help_text=_("A rule file of Prometheus. A rule is the one of its group and alert."),
    )
    replace = forms.BooleanField(
        label=_("Remove the rules of these groups that the file does not have"), required=False
    )
    skip = forms.BooleanField(
        label=_("Leave out what is not known here"),
        required=False,
        help_text=_("Recording rules, other severities, PromQL and templates of others: each is told as a warning."),
    )
