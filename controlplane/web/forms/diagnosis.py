"""The form of a lever policy."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from controlplane.core.fields import default_of
from controlplane.diagnosis.detectors.registry import DETECTORS
from controlplane.diagnosis.models import LeverPolicy
from controlplane.fleet.services import POOLS
from controlplane.web.forms.common import RefusableForm, ScaledField
from controlplane.web.forms.inputs import numeric

# With a default that the form shows.
_DEFAULTED = ("enabled", "max_an_hour", "min_confidence_permille", "revert_if_not_held", "stand_back_seconds")


def _detectors() -> list[tuple[str, Any]]:
    return [(detector.name, detector.title) for detector in DETECTORS]


def _pools() -> list[tuple[str, str]]:
    return [(name, name) for name in POOLS.keys()]  # noqa: SIM118 - a method of the noun, which is no dict


class LeverPolicyForm(RefusableForm):
    detector = forms.ChoiceField(label=_("Bottleneck"), choices=_detectors)
    lever = forms.CharField(
        label=_("Lever"), max_length=63, help_text=_("Its key, as the finding's page shows it beside the lever.")
    )
    enabled = forms.BooleanField(label=_("On: the lever is applied by itself"), required=False)
    max_an_hour = forms.IntegerField(label=_("At most so often an hour"), min_value=1, widget=numeric())
    min_confidence_permille = ScaledField(
        10,
        label=_("From this confidence on (%)"),
        min_value=0,
        max_value=100,
        decimal_places=1,
        help_text=_("Surer findings leave less to chance."),
    )
    pools = forms.MultipleChoiceField(
        label=_("Only in these pools"),
        choices=_pools,
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=_("None chosen: in all."),
    )
    revert_if_not_held = forms.BooleanField(label=_("Take it back by itself where it did not help"), required=False)
    stand_back_seconds = forms.IntegerField(
        label=_("Stand back after a person's change (seconds)"),
        min_value=0,
        widget=numeric(),
        help_text=_("What a person changed lately is left to them."),
    )

    def values(self) -> dict[str, Any]:
        """The fields as the service takes them."""
        return {**self.cleaned_data, "pools": self.cleaned_data["pools"] or None}

    @staticmethod
    def defaults() -> dict[str, Any]:
        return {name: default_of(LeverPolicy, name) for name in _DEFAULTED}

    @staticmethod
    def shown(current: dict[str, Any]) -> dict[str, Any]:
        """A policy's public form as the form shows it."""
        return {**current, "pools": current["pools"] or []}


class NewLeverPolicyForm(LeverPolicyForm):
    name = forms.CharField(label=_("Name"), max_length=63, help_text=_("The audit names what it did by this."))
    field_order = ("name",)
