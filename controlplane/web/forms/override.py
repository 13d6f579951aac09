"""The form that forces a breaker."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from controlplane.alerts.rule_file.durations import milliseconds
from controlplane.breakers.services import EXPIRES_MAX_SECONDS
from controlplane.fleet.models import Engine, Pool
from controlplane.web.forms.alert import NounForm
from wire.problems import Problem

DURATIONS = [
    ("900", _("15 minutes")),
    ("3600", _("1 hour")),
    ("14400", _("4 hours")),
    ("86400", _("24 hours")),
    ("other", _("as typed below")),
]


class OverrideForm(NounForm):
    """Which breaker, how, and for how long. The reason is given where the change is reviewed."""

    subject = forms.ChoiceField(label=_("Breaker of"))
    state = forms.ChoiceField(
        label=_("Force it"),
        choices=[("open", _("open: no requests go there")), ("closed", _("closed: requests go there whatever fails"))],
    )
    lasts = forms.ChoiceField(label=_("For"), choices=DURATIONS, initial="3600")
    typed = forms.CharField(
        label=_("Other time"), required=False, help_text=_("Such as 45m or 2h, a day at most."), max_length=20
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        engines: dict[str, list[str]] = {}
        for name, pool in Engine.objects.order_by("name").values_list("name", "pool__name"):
            engines.setdefault(pool, []).append(name)
        groups: list[tuple[Any, list[tuple[str, Any]]]] = []
        for pool in Pool.objects.order_by("name").values_list("name", flat=True):
            whole = (f"pool/{pool}", gettext("the whole pool %(name)s") % {"name": pool})
            groups.append((pool, [whole, *((f"engine/{name}", name) for name in engines.get(pool, []))]))
        self.fields["subject"].choices = groups  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if cleaned.get("lasts") == "other":
            try:
                cleaned["seconds"] = milliseconds(cleaned.get("typed") or "") // 1000
            except ValueError:
                self.add_error("typed", gettext("Give a time, such as 45m or 2h."))
            else:
                self._bounded(cleaned["seconds"])
        elif "lasts" in cleaned:
            cleaned["seconds"] = int(cleaned["lasts"])
        return cleaned

    def _bounded(self, seconds: int) -> None:
        if not 1 <= seconds <= EXPIRES_MAX_SECONDS:
            self.add_error("typed", gettext("Give one second to one day."))

    def values(self) -> dict[str, Any]:
        """As the REST call takes it."""
        kind, _slash, subject = self.cleaned_data["subject"].partition("/")
        return {
            "subject_kind": kind,
            "subject": subject,
            "state": self.cleaned_data["state"],
            "expires_in_seconds": self.cleaned_data["seconds"],
        }

    def at_field(self, problem: Problem) -> Problem:
        fields = {"/subject_kind": "/subject", "/expires_in_seconds": "/typed"}
        return Problem(fields.get(problem.path, problem.path), problem.rule, problem.message)
