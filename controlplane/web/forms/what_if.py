"""The form of a what-if of a pool. What it may be is decided by the service."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from controlplane.fleet.models import Pool
from controlplane.planner.what_if_asked import DAYS_MAX
from controlplane.web.forms.common import RefusableForm
from controlplane.web.forms.inputs import numeric


class NumbersField(forms.CharField):
    """Numbers, separated by commas; as text where they are none, so that the service says what would be right."""

    def __init__(self, kind: type[int] | type[float], **options: Any) -> None:
        super().__init__(required=False, **options)
        self._kind = kind

    def clean(self, value: Any) -> list[int | float]:
        text = super().clean(value) or ""
        try:
            return [self._kind(part) for part in text.replace(" ", "").split(",") if part]
        except ValueError:
            raise forms.ValidationError(_("Give numbers, separated by commas.")) from None


class WhatIfForm(RefusableForm):
    """Named as in the REST call; lists go into its `ask`."""

    pool = forms.ChoiceField(label=_("Pool"), help_text=_("Lengths, arrivals and SLO are taken from it."))
    days = forms.IntegerField(label=_("Measured over (days)"), initial=7, widget=numeric())
    max_num_seqs = NumbersField(
        int, label="max_num_seqs", help_text=_("Values to try. Empty: around what its engines have now.")
    )
    max_num_batched_tokens = NumbersField(
        int, label="max_num_batched_tokens", help_text=_("Values to try. Empty: around what its engines have now.")
    )
    replicas = NumbersField(int, label=_("Engines"), help_text=_("Values to try. Empty: as many as are in service."))
    loads = NumbersField(
        float, label=_("Times the load"), help_text=_("Such as 1, 1.5, 2. Empty: the load of the busiest hour.")
    )
    calibrate = forms.BooleanField(
        label=_("Calibrate"),
        required=False,
        initial=True,
        help_text=_("First finds the speed that fits the latencies which were measured in the last hour."),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = Pool.objects.order_by("name").values_list("name", flat=True)
        self.fields["pool"].choices = [(name, name) for name in names]  # type: ignore[attr-defined]
        self.fields["days"].help_text = _("1 to %(most)d.") % {"most": DAYS_MAX}

    def values(self) -> dict[str, Any]:
        """The fields as the service takes them."""
        lists = ("max_num_seqs", "max_num_batched_tokens", "replicas", "loads")
        ask = {name: self.cleaned_data[name] for name in lists if self.cleaned_data[name]}
        return {**{name: self.cleaned_data[name] for name in ("pool", "days", "calibrate")}, "ask": ask}
