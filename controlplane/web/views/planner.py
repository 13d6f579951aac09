"""The planner: a model's capacity, from users to GPUs, and whether a rate can be promised. Nothing is stored."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from controlplane.core.errors import Refused
from controlplane.core.security import Caller
from controlplane.fleet.models import Model, Pool
from controlplane.fleet.services import POOLS
from controlplane.planner import fleet_gpus, plans, promises
from controlplane.tenants.models import Tenant
from controlplane.web.access import page
from controlplane.web.curl import curl
from controlplane.web.forms.common import RefusableForm
from controlplane.web.forms.plan import PASTED, FanOutForm, PlanForm, PromiseForm
from controlplane.web.shown.planned_pool import initial_of
from controlplane.web.shown.planner import (
    TONES,
    VERDICTS,
    gib,
    memory_bar,
    percent,
    rows_of,
    signed_percent,
    wait_curve,
)
from wire.canonical import Document


@page()
def planner(request: HttpRequest, caller: Caller) -> HttpResponse:
    fleet = fleet_gpus.describe()["fleet"]
    pool = _pool_of(request)
    form = PlanForm(
        request.POST or None,
        initial=initial_of(pool, fleet) if pool is not None and request.method != "POST" else None,
        fleet=fleet,
        pools=_names(Pool),
        tenants=_names(Tenant),
        models=_names(Model),
    )
    answered = _answered(form, plans.plan) if request.method == "POST" else None
    context: dict[str, Any] = {"form": form, "pool": pool, "curl_plan": curl(request, "GET", "/plans/gpus")}
    context["paste_model"] = pool is not None and form["model"].value() == PASTED
    if answered is not None:
        body, plan = answered
        context |= {"plan": plan, "curl_plan": curl(request, "POST", "/plans", body=body), **_shown(plan)}
    return _page(request, "web/planner.html", form, context)


def _pool_of(request: HttpRequest) -> Pool | None:
    """That of `?pool=`, which the page of a pool leads here with. Raises NotFound."""
    name = request.GET.get("pool", "")
    return POOLS.get(name) if name else None


def _shown(plan: Document) -> dict[str, Any]:
    found: dict[str, Any] = {
        "rows": rows_of(plan),
        "engines": [(each, signed_percent(each["error_permille"])) for each in plan["engines"]],
        "weights": gib(plan["serving"]["weights_bytes"]),
        "memory": gib(plan["machines"]["memory_bytes"]),
        "billions": f"{plan['model']['parameters'] / 1e9:.2f}",
    }
    if plan["chosen"] is None:
        return {**found, "missing": gib(plan["closest"]["missing_bytes"])}
    start = plan["start"]
    settings = [(name, start[name]) for name in ("max_num_seqs", "max_num_batched_tokens", "queue_cap") if start[name]]
    return {
        **found,
        "segments": memory_bar(plan),
        "settings": settings,
        "curve": wait_curve(start["waits"]),
        "waits": [(wait, percent(wait["load_permille"])) for wait in start["waits"]],
    }


@page()
def fan_out(request: HttpRequest, caller: Caller) -> HttpResponse:
    form = FanOutForm(request.POST or None)
    answered = _answered(form, plans.fan_out) if request.method == "POST" else None
    context: dict[str, Any] = {"form": form, "curl_fan_out": curl(request, "POST", "/plans/fan-out", body=_example())}
    if answered is not None:
        body, made = answered
        context |= {"made": made, "curl_fan_out": curl(request, "POST", "/plans/fan-out", body=body)}
    return _page(request, "web/planner_fan_out.html", form, context)


def _example() -> Document:
    """The body of the numbers that the form begins with."""
    form = FanOutForm({field.html_name: field.value() for field in FanOutForm()})
    return form.asked() if form.is_valid() else {}


@page()
def promise(request: HttpRequest, caller: Caller) -> HttpResponse:
    tenants = _names(Tenant)
    form = PromiseForm(request.GET or None, tenants=tenants)
    answered = _answered(form, lambda asked: promises.ask(**asked)) if request.GET else None
    line = curl(request, "GET", "/plans/promise", query={"tenant": "NAME", "tpm": 200_000})
    context: dict[str, Any] = {"form": form, "tenants": tenants, "curl_promise": line}
    if answered is not None:
        asked, answer = answered
        context |= {
            "answer": answer,
            "verdict": VERDICTS[answer["verdict"]],
            "tone": TONES[answer["verdict"]],
            "pools": [
                (pool, VERDICTS[pool["verdict"]], TONES[pool["verdict"]], *map(percent, _parts(pool)))
                for pool in answer["pools"]
            ],
            "curl_promise": curl(request, "GET", "/plans/promise", query=asked),
        }
    return _page(request, "web/planner_promise.html", form, context)


def _parts(pool: Document) -> tuple[int | None, int | None]:
    return pool["promised_permille_now"], pool["promised_permille"]


def _answered(form: Any, answer: Callable[[Document], Document]) -> tuple[Document, Document] | None:
    """What was asked and the answer; None where the form says what is wrong."""
    if not form.is_valid():
        return None
    try:
        asked = form.asked()
        return asked, answer(asked)
    except Refused as refused:
        form.take_refusal(refused)
        return None


def _page(request: HttpRequest, template: str, form: RefusableForm, context: dict[str, Any]) -> HttpResponse:
    status = HTTPStatus.UNPROCESSABLE_ENTITY if form.errors else HTTPStatus.OK
    tabs = [
        ("planner", _("A model")),
        ("plan_fan_out", _("From users to GPUs")),
        ("plan_promise", _("A promise")),
        ("what_ifs", _("What-if")),
    ]
    return render(request, template, {"section": "planner", "tabs": tabs, **context}, status=status)


def _names(kind: type[Model | Pool | Tenant]) -> list[str]:
    return list(kind._default_manager.order_by("name").values_list("name", flat=True))
