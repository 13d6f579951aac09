"""The form of recording rules: one rule file."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext_lazy as _

from controlplane.web.forms.common import RefusableForm
from controlplane.web.forms.inputs import code

_ROWS = 32


class RuleFileForm(RefusableForm):
    """A text of Prometheus' form; what may stand in it is decided by the service."""

    # Spaces begin lines there, and a line's end may belong to a text.
    rule_file = forms.CharField(
        label=_("Rules (YAML)"),
        strip=False,
        widget=code(_ROWS, wrap="off"),
        help_text=_("As in a rule file of Prometheus: groups of rules with record, expr and, if need be, labels."),
    )
