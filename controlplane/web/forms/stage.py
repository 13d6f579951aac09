"""The form of a staged publish: which change, for which targets, watched how."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from django import forms
from django.forms import BoundField
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from controlplane.configs.document_text import read_document
from controlplane.core.errors import Refused
from controlplane.core.models import Target, TargetKind
from controlplane.telemetry.promql.written import one_of
from controlplane.web.forms.alert import LinesField
from controlplane.web.forms.common import RefusableForm, ScaledField
from controlplane.web.forms.inputs import code, numeric
from controlplane.web.forms.rules import DurationField
from wire.canonical import Document
from wire.problems import Problem

_EXPIRES_MS, _WATCHED_MS, _FAILURES_PERMILLE = 3_600_000, 600_000, 10
# Where a problem of the REST call's stands in the form.
_PLACES = {
    "patch": "change",
    "document": "change",
    "first": "amount",
    "targets": "targets",
    "expression": "expression",
    "for_seconds": "for_ms",
    "then": "then",
    "expires_in_seconds": "expires_ms",
}


class StageForm(RefusableForm):
    change = forms.CharField(
        label=_("Change (YAML or JSON)"),
        strip=False,
        widget=code(8),
        help_text=_("A merge patch (RFC 7396) of the configuration, such as tenants: {acme: {tpm_limit: 9000}}."),
    )
    which = forms.ChoiceField(
        label=_("Who gets it first"),
        choices=[
            ("first", _("so many gateways, by name")),
            ("share", _("so many percent of the gateways")),
            ("named", _("the targets that are named below")),
        ],
    )
    amount = forms.IntegerField(
        label=_("How many, or how many percent"), required=False, min_value=1, max_value=1000,
        widget=numeric(),
    )  # fmt: skip
    targets = LinesField(
        label=_("Targets"), required=False, help_text=_("One a line, such as gateway/edge-1 or node/rack-3.")
    )
    watch = forms.ChoiceField(
        label=_("What is watched"),
        choices=[
            ("", _("nothing: a person looks")),
            ("failures", _("the share of failed requests at these gateways")),
            ("own", _("the expression below")),
        ],
        required=False,
    )
    failures_permille = ScaledField(
        10, label=_("Failed requests, less than (%)"), required=False, min_value=0, max_value=100, decimal_places=1
    )
    expression = forms.CharField(
        label=_("Expression (PromQL)"), required=False, strip=False,
        widget=code(2),
        help_text=_(
            "Healthy while it has a result that is neither NaN nor 0. What is not healthy is taken back at once."
        ),
    )  # fmt: skip
    for_ms = DurationField(label=_("Healthy for"), required=False, help_text=_("Such as 10m."))
    then = forms.ChoiceField(
        label=_("Then"),
        choices=[("wait", _("a person decides")), ("promote", _("it is given to all by itself"))],
    )
    expires_ms = DurationField(label=_("Taken back after"), help_text=_("Unless it is given to all before."))
    allow_removals = forms.BooleanField(label=_("It may remove keys, engines or many entries"), required=False)

    def grouped(self) -> Iterator[list[BoundField]]:
        """What stands in one row."""
        for names in (
            ("change",),
            ("which", "amount", "targets"),
            ("watch", "failures_permille", "expression"),
            ("for_ms", "then", "expires_ms"),
            ("allow_removals",),
        ):
            yield [self[name] for name in names]

    @staticmethod
    def suggested() -> dict[str, Any]:
        return {
            "which": "first",
            "amount": 1,
            "watch": "failures",
            "failures_permille": _FAILURES_PERMILLE,
            "for_ms": _WATCHED_MS,
            "expires_ms": _EXPIRES_MS,
        }

    def clean_targets(self) -> list[str]:
        typed: list[str] = self.cleaned_data["targets"]
        for target in typed:
            kind, _slash, name = target.partition("/")
            if kind not in TargetKind.values or not name:
                raise forms.ValidationError(gettext("Give kind and name, not “%(name)s”.") % {"name": target})
        return typed

    def clean_change(self) -> Document:
        return read_change(self.cleaned_data["change"])

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        which = cleaned.get("which")
        if which in ("first", "share") and not cleaned.get("amount") and "amount" not in self.errors:
            self.add_error("amount", gettext("Give how many."))
        if which == "share" and (cleaned.get("amount") or 0) > 100:
            self.add_error("amount", gettext("Give 1 to 100."))
        if which == "named" and not cleaned.get("targets"):
            self.add_error("targets", gettext("Name at least one target."))
        if cleaned.get("watch") == "own" and not cleaned.get("expression"):
            self.add_error("expression", gettext("Give what is watched."))
        if cleaned.get("watch") == "failures" and cleaned.get("failures_permille") is None:
            self.add_error("failures_permille", gettext("Give a share."))
        return cleaned

    def values(self) -> dict[str, Any]:
        """As the REST call takes it, the targets by name."""
        given = self.cleaned_data
        targets = self._targets()
        return {
            "patch": given["change"],
            **({"targets": targets} if targets else {"first": given["amount"]}),
            "watch": self._watch(targets),
            "then": given["then"],
            "expires_in_seconds": given["expires_ms"] // 1000,
        }

    def _targets(self) -> list[str]:
        given = self.cleaned_data
        if given["which"] == "named":
            return list(given["targets"])
        gateways = Target.objects.filter(kind=TargetKind.GATEWAY, revoked_at=None).order_by("name")
        names = list(gateways.values_list("name", flat=True))
        share = given["which"] == "share"
        count = math.ceil(len(names) * given["amount"] / 100) if share else given["amount"]
        return [f"{TargetKind.GATEWAY.value}/{name}" for name in names[:count]]

    def _watch(self, targets: list[str]) -> dict[str, Any] | None:
        given = self.cleaned_data
        if not given["watch"]:
            return None
        own = given["watch"] == "own"
        expression = given["expression"] if own else failures_expression(targets, given["failures_permille"])
        return {"expression": expression, "for_seconds": given["for_ms"] // 1000}

    def at_field(self, problem: Problem) -> Problem:
        steps = problem.path.strip("/").split("/")
        known = [_PLACES[step] for step in steps if step in _PLACES]
        # What a section refuses has its place in the change, and says which.
        if known and steps[0] in _PLACES:
            shown = problem.message if len(steps) == 1 or known[0] != "change" else f"{problem.path}: {problem.message}"
            return Problem(f"/{known[-1]}", problem.rule, shown)
        if steps[0] == "watch" and known:
            return Problem(f"/{known[-1]}", problem.rule, problem.message)
        return Problem("/change", problem.rule, f"{problem.path}: {problem.message}")


def read_change(text: str) -> Document:
    """A patch as it was typed. Raises ValidationError, which says the line where it cannot be read."""
    try:
        read = read_document(text.encode(), json=text.lstrip().startswith("{"))
    except Refused as refused:
        raise forms.ValidationError(refused.detail) from refused
    if not isinstance(read, dict):
        raise forms.ValidationError(gettext("Give a map of sections, such as tenants: {acme: {tpm_limit: 9000}}."))
    return read


def failures_expression(targets: list[str], most_permille: int) -> str:
    """Holds while less than this share of the requests at these gateways fails; also while there are none."""
    names = [target.partition("/")[2] for target in targets]
    gateways = one_of(names)
    requests, lately = f"headworks_gateway_requests_total{{gateway=~{gateways}", "[2m]"
    failed = f'sum(rate({requests},outcome="failed"}}{lately})) or vector(0)'
    everything = f"clamp_min(sum(rate({requests}}}{lately})) or vector(0), 0.001)"
    return f"({failed}) / {everything} < {most_permille / 1000:g}"
