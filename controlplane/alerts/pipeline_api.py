"""REST of what stands between an alert and the people: routes, inhibitions, silences, maintenance windows."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import HttpRequest
from django.utils import timezone
from ninja import Query, Router

from controlplane.alerts.services import alert_routes, maintenance_windows, silences
from controlplane.alerts.services.alert_routes import ALERT_ROUTES
from controlplane.alerts.services.inhibitions import INHIBITIONS
from controlplane.alerts.services.maintenance_windows import MAINTENANCE_WINDOWS
from controlplane.alerts.services.silences import SILENCES
from controlplane.core.rest import add_noun
from controlplane.core.security import admin, operator, viewer
from controlplane.core.writes import Options, WriteAnswer, perform
from wire.canonical import Document

router = Router()

Source = Annotated[Literal["rule", "event"], Query(description="What the alert would be of.")]
LabelTexts = Annotated[list[str], Query(alias="label", description="Such as `alertname=GpuXid`; give it once a label.")]


@router.get(
    "/alert-routes/test", auth=viewer, response=dict[str, Any], tags=["alert-routes"],
    summary="Try where an alert would go",
)  # fmt: skip
def try_route(request: HttpRequest, labels: LabelTexts, source: Source = "rule") -> Document:
    """Its route and group, its receivers, and what keeps it mute now. Nothing is sent."""
    return alert_routes.tried(alert_routes.labels_of(labels), source)


@router.post(
    "/silences/{name}/expire", auth=operator, response=WriteAnswer, tags=["silences"], summary="End a silence now"
)
def expire_silence(request: HttpRequest, name: str, options: Options) -> WriteAnswer:
    """What it kept quiet, and still fires, is told. A second time changes nothing."""
    return perform(request, options, lambda unit: SILENCES.describe(SILENCES.expire(unit, name, timezone.now())))


add_noun(router, "/alert-routes", ALERT_ROUTES, write=admin)
add_noun(router, "/inhibitions", INHIBITIONS, write=admin)
add_noun(router, "/silences", SILENCES, write=operator, show=silences.shown)
add_noun(router, "/maintenance-windows", MAINTENANCE_WINDOWS, write=operator, show=maintenance_windows.shown)
