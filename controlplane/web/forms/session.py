"""The form of session limits."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_lazy as _

from controlplane.core.fields import default_of
from controlplane.tenants.models import SessionLimits
from controlplane.web.forms.grouped import Group, GroupedForm, name_field
from controlplane.web.forms.numbers import seconds, whole

_NO_LIMIT = _("no limit")


class SessionLimitsForm(GroupedForm):
    """The fields of session limits, named as in the REST call."""

    max_iterations = whole(_("Model calls, at most"), empty=_NO_LIMIT, least=1)
    max_tokens = whole(_("Tokens, at most"), _("Prompts and answers of all its calls."), empty=_NO_LIMIT)
    max_depth = whole(_("Depth, at most"), _("Of agents that call agents; 0: none may."), empty=_NO_LIMIT)
    max_repeated_calls = whole(
        _("The same tool call in a row, at most"),
        _("With the same arguments: a loop that goes nowhere."),
        empty=_NO_LIMIT,
        least=1,
    )
    max_cost_micros = whole(
        _("Cost, at most"),
        _("Millionths of the fleet's money, by the models' prices."),
        empty=_NO_LIMIT,
    )
    idle_ms = seconds(_("Forgotten after (s)"), _("Without a request; its counts begin anew then."))

    groups = (
        Group(
            _("What one session may take"),
            _("What passes a limit closes the session: it is refused with 429 from then on."),
            ("max_iterations", "max_repeated_calls", "max_depth", "max_tokens", "max_cost_micros"),
        ),
        Group(_("When it ends"), "", ("idle_ms",)),
    )

    @staticmethod
    def suggested() -> dict[str, Any]:
        return {"idle_ms": default_of(SessionLimits, "idle_ms")}


class NewSessionLimitsForm(SessionLimitsForm):
    name = name_field()
