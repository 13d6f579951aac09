"""The form of a priority class."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_lazy as _

from controlplane.core.fields import default_of
from controlplane.tenants.models import PriorityClass
from controlplane.web.forms.grouped import Group, GroupedForm, name_field
from controlplane.web.forms.numbers import percent, seconds, whole

_AS_POOL = _("as the pool says")


class PriorityClassForm(GroupedForm):
    """The fields of a class, named as in the REST call."""

    rank = whole(_("Rank"), _("The lowest is served first."))
    ageing_ms = seconds(_("Gains a rank each (s)"), _("Of waiting, so that nobody waits for ever. 0: never."))
    queue_ttl_ms = seconds(_("Longest wait (s)"), empty=_AS_POOL)
    shed_order = whole(
        _("Shed order"), _("Where a queue is full, a request of a higher number gives way to one of a lower.")
    )
    kv_ceiling_permille = percent(
        _("KV ceiling (%)"),
        _("So full may its requests make an engine; the rest is kept for classes with a higher ceiling."),
        least_permille=1,
    )
    ttft_slo_ms = whole(_("Time to first token, at most (ms)"), empty=_AS_POOL)
    tpot_slo_ms = whole(_("Time per output token, at most (ms)"), empty=_AS_POOL)
    e2e_slo_ms = whole(_("The whole answer, at most (ms)"), empty=_AS_POOL)
    objective_permille = percent(_("Objective (share of requests, %)"), empty=_AS_POOL)

    groups = (
        Group(_("Order"), _("Who goes first where requests wait."), ("rank", "ageing_ms", "queue_ttl_ms")),
        Group(_("When room is short"), _("Who gives way to whom."), ("shed_order", "kv_ceiling_permille")),
        Group(
            _("What is promised (SLO)"),
            _("What is given here goes before what the pool promises."),
            ("ttft_slo_ms", "tpot_slo_ms", "e2e_slo_ms", "objective_permille"),
        ),
    )

    @staticmethod
    def suggested() -> dict[str, Any]:
        names = ("ageing_ms", "shed_order", "kv_ceiling_permille")
        return {name: default_of(PriorityClass, name) for name in names}


class NewPriorityClassForm(PriorityClassForm):
    name = name_field()
