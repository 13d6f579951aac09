"""REST of the capacity planner. Nothing is stored, so all of it is for viewers, and no call takes a reason."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Body, Query, Router

from controlplane.core.fields import ShownAs
from controlplane.core.security import viewer
from controlplane.planner import fleet_gpus, plans, promises
from controlplane.planner.plan_fields import FanOutFields, PlanFields
from wire.canonical import MAX_INTEGER, Document

router = Router(tags=["planner"])
PlanBody = Annotated[dict[str, Any], ShownAs(PlanFields), Body()]
FanOutBody = Annotated[dict[str, Any], ShownAs(FanOutFields), Body()]
TenantAsked = Annotated[str, Query(min_length=1, max_length=63, pattern=r"^[^\x00-\x1f]*$")]
Tpm = Annotated[int, Query(ge=0, le=MAX_INTEGER, description="Tokens a minute, input and output together.")]


@router.post("/plans", auth=viewer, response=dict[str, Any], summary="Plan a model's capacity")
def plan(request: HttpRequest, body: PlanBody) -> Document:
    """Weights, KV cache, sequences, settings to start with, waits; and why replicas, tensor parallelism or a pipeline.

    A plan that does not fit is an answer like others: `fits` is false, `closest` says what is missing, `remedies` what
    would do. `engines`: the same estimate beside what engines of the model measured, with its error.
    """
    return plans.plan(body)


@router.get("/plans/gpus", auth=viewer, response=dict[str, Any], summary="List what can be planned with")
def list_gpus(request: HttpRequest) -> Document:
    """GPUs of the table and of the fleet, and the models that are known by name."""
    return fleet_gpus.describe()


@router.post("/plans/fan-out", auth=viewer, response=dict[str, Any], summary="From users to GPUs")
def fan_out(request: HttpRequest, body: FanOutBody) -> Document:
    """Users × calls a request × tokens: tokens a second and GPUs of each call and model, prefill and decode apart."""
    return plans.fan_out(body)


@router.get("/plans/promise", auth=viewer, response=dict[str, Any], summary="Can a tenant be promised a rate?")
def can_promise(request: HttpRequest, tenant: TenantAsked, tpm: Tpm) -> Document:
    """What this limit would promise of each pool that the tenant reaches, beside what engines may hold, live."""
    return promises.ask(tenant, tpm)
