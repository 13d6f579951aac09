"""Rollouts: the list, one with its steps as they go, and what people do with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from controlplane.core.changes import UnitOfWork
from controlplane.core.errors import NotFound
from controlplane.core.models import Role
from controlplane.core.security import Caller
from controlplane.fleet.models import Engine, Pool
from controlplane.rollouts import services, standing
from controlplane.rollouts.models import Rollout, Step
from controlplane.web.access import page
from controlplane.web.asked import number_in
from controlplane.web.convergence import followed
from controlplane.web.curl import curl, reason_of
from controlplane.web.effects import tenants_of
from controlplane.web.shown.quantities import percent
from controlplane.web.shown.rollouts import step_about, step_label
from controlplane.web.views.review import Proposal, confirm

ROWS_PER_PAGE = 50


@dataclass(frozen=True)
class Verb:
    """What a person can do with a rollout. `states`: those in which it can be done."""

    label: Any
    note: Any
    states: tuple[str, ...]
    act: Callable[[UnitOfWork, int], Rollout]
    dangerous: bool = False


VERBS = {
    "pause": Verb(
        gettext_lazy("Pause"),
        gettext_lazy("It stays where it is. A breach of its conditions still takes it back."),
        ("running",),
        services.pause,
    ),
    "resume": Verb(
        gettext_lazy("Resume"),
        gettext_lazy("It goes on, from what people made of the routes meanwhile."),
        ("paused",),
        services.resume,
    ),
    "return": Verb(
        gettext_lazy("Take back"),
        gettext_lazy("Everything becomes as it was before, in one revision."),
        ("running", "paused", "aborted", "failed"),
        services.take_back,
        dangerous=True,
    ),
    "abort": Verb(
        gettext_lazy("Abort"),
        gettext_lazy("It ends, and leaves traffic and engines as they stand."),
        ("running", "paused", "returning"),
        services.abort,
        dangerous=True,
    ),
}


@dataclass(frozen=True)
class StepLine:
    row: Step
    gpus: int | None

    @property
    def label(self) -> Any:
        return step_label(self.row.kind)

    @property
    def about(self) -> str:
        return step_about(self.row.arguments)

    @property
    def took_seconds(self) -> float | None:
        if self.row.begun_at is None or self.row.ended_at is None:
            return None
        return (self.row.ended_at - self.row.begun_at).total_seconds()


@page()
def rollouts(request: HttpRequest, caller: Caller) -> HttpResponse:
    start = number_in(request, "before")
    rows, following = standing.page(ROWS_PER_PAGE, start)
    context = {
        "section": "rollouts",
        "rows": rows,
        "paged": start is not None,
        "next_address": following and f"{reverse('web:rollouts')}?before={following}",
        **followed(request, caller),
        "curl_rollouts": curl(request, "GET", "/rollouts"),
    }
    return render(request, "web/rollouts.html", context)


@page()
def rollout(request: HttpRequest, caller: Caller, rollout_id: int) -> HttpResponse:
    row = standing.get(rollout_id)
    gpus = {step["index"]: step["gpus"] for step in row.cost.get("steps", ())}
    context = {
        "section": "rollouts",
        "rollout": row,
        "pool_address": reverse("web:pool", args=[row.pool]) if Pool.objects.filter(name=row.pool).exists() else "",
        "lines": [StepLine(step, gpus.get(step.index)) for step in row.steps.all()],
        "verbs": [(name, verb) for name, verb in VERBS.items() if row.state in verb.states],
        "trail": [(reverse("web:rollouts"), _("Rollouts"))],
        **followed(request, caller),
        "curl_rollout": curl(request, "GET", f"/rollouts/{rollout_id}"),
    }
    return render(request, "web/rollout.html", context)


@page(Role.OPERATOR)
def change_rollout(request: HttpRequest, caller: Caller, rollout_id: int, verb: str) -> HttpResponse:
    if verb not in VERBS:
        raise NotFound(_("There is nothing of that name to do with a rollout."))
    row, chosen = standing.get(rollout_id), VERBS[verb]
    back = reverse("web:rollout", args=[rollout_id])

    def change(unit: UnitOfWork) -> None:
        chosen.act(unit, rollout_id)

    title = _("%(verb)s: rollout %(id)d of %(pool)s") % {"verb": chosen.label, "id": row.pk, "pool": row.pool}
    proposal = Proposal(
        section="rollouts",
        title=title,
        apply_label=str(chosen.label),
        action=change,
        trail=[(reverse("web:rollouts"), _("Rollouts")), (back, _("Rollout %(id)d") % {"id": row.pk})],
        done=back,
        curl=curl(request, "POST", f"/rollouts/{rollout_id}/{verb}", query=reason_of(request)),
        note=_note(row, verb),
        dangerous=chosen.dangerous,
        whom=tenants_of([name for name in (row.pool, row.new_pool) if name]) if chosen.dangerous else "",
        refused_title=_("Cannot be done now"),
    )
    return confirm(request, caller, proposal)


def _note(row: Rollout, verb: str) -> str:
    """What it does, and where traffic and engines are when it does."""
    said = [str(VERBS[verb].note)]
    if row.new_pool:
        where = _("Now %(share)s of the traffic of %(pool)s goes to %(new_pool)s.")
        said.append(where % {"share": percent(row.share_permille / 1000), "pool": row.pool, "new_pool": row.new_pool})
    if verb == "abort" and (held := Engine.objects.filter(held_out_by=row.holder).count()):
        text = ngettext("%(count)d engine stays out of service.", "%(count)d engines stay out of service.", held)
        said.append(text % {"count": held})
    return " ".join(said)
