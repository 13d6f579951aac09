"""Forms of metric writers, with fields named as in the REST call."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from controlplane.telemetry.writers import OVERLAP_MAX_SECONDS
from controlplane.web.forms.alert import MomentField, NounForm
from controlplane.web.forms.common import RefusableForm, ScaledField, SecretForm
from controlplane.web.forms.inputs import code


class MatchersField(forms.CharField):
    """Labels and their values, one a line as name=value."""

    def __init__(self, **options: Any) -> None:
        widget = code(3)
        super().__init__(widget=widget, **options)

    def clean(self, value: Any) -> dict[str, str]:
        found: dict[str, str] = {}
        for line in filter(None, map(str.strip, super().clean(value).splitlines())):
            name, separator, text = (part.strip() for part in line.partition("="))
            if not separator or name in found:
                form = _("Give each label once, as name=value, not “%(line)s”.")
                raise ValidationError(form % {"line": line})
            found[name] = text.strip('"')
        return found

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(f"{name}={text}" for name, text in value.items()) if isinstance(value, dict) else value


class _WriterFields(RefusableForm):
    matchers = MatchersField(
        label=_("Labels that each of its series carries"),
        help_text=_("One a line, such as cluster=lab. They tell its series from those of others."),
    )
    expires_at = MomentField(label=_("Its token expires"), required=False)


class WriterForm(_WriterFields, NounForm):
    blocked = forms.BooleanField(label=_("Blocked: nothing that it sends is taken"), required=False)


class NewWriterForm(_WriterFields, SecretForm):
    name = forms.CharField(label=_("Name"), max_length=63, help_text=_("Lower-case letters, digits, '.', '_' and '-'."))
    field_order = ("name", "matchers", "expires_at", "reason")


class RotateWriterForm(SecretForm):
    overlap_seconds = ScaledField(
        3600,
        label=_("Hours for which the old token works on"),
        min_value=0,
        max_value=OVERLAP_MAX_SECONDS // 3600,
        decimal_places=2,
        help_text=_("Time to bring the new token to where the old one is used. 0: it ends at once."),
    )
    expires_at = MomentField(label=_("The new one expires"), required=False)
    field_order = ("overlap_seconds", "expires_at", "reason")
