"""Whether the process lives, whether it can serve, and what it measures of itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus

from django.db import Error
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_GET
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from controlplane.api.database_check import database_check
from controlplane.configs.convergence import State, convergence
from controlplane.configs.history import Damaged
from controlplane.configs.hub import heads, hub
from controlplane.configs.metrics import REGISTRY
from controlplane.core.models import TargetKind
from controlplane.telemetry.metrics import RECEIVER


@require_GET
def healthz(request: HttpRequest) -> HttpResponse:
    """The process answers. Asks nothing of the database, so that a database away does not get it restarted."""
    return JsonResponse({"status": "alive"})


@require_GET
def readyz(request: HttpRequest) -> HttpResponse:
    """200 where calls can be served: the database can be written and the newest revision is in memory.

    503 says what lacks, within seconds also where the database does not answer.
    """
    missing = []
    if lacks := database_check.missing():
        missing.append(lacks)
    if not hub.running:
        missing.append("the configuration is not distributed by this process")
    if heads.damaged is not None:
        missing.append(heads.damaged.detail)
    elif heads.newest is None:
        missing.append("no revision is loaded yet")
    status = HTTPStatus.SERVICE_UNAVAILABLE if missing else HTTPStatus.OK
    return JsonResponse({"status": "not ready" if missing else "ready", "missing": missing}, status=status)


@require_GET
def metrics(request: HttpRequest) -> HttpResponse:
    """Prometheus text format."""
    return HttpResponse(generate_latest(REGISTRY), content_type=CONTENT_TYPE_LATEST)


class FleetCollector(Collector):
    """Read when asked. With the database away or a revision damaged the families that need them are absent, not 0."""

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("headworks_config_streams", "Config streams open in this process.", len(hub.streams))
        try:
            stands = convergence()
        except (Error, Damaged):
            return
        if stands["revision"] is not None:
            yield GaugeMetricFamily("headworks_config_revision", "Newest published revision.", stands["revision"])
        targets = GaugeMetricFamily(
            "headworks_targets", "Targets that are not revoked, by kind and state.", labels=("kind", "state")
        )
        counted = Counter((target["kind"], target["state"]) for target in stands["targets"])
        for kind in TargetKind:
            for state in State:
                targets.add_metric((kind.value, state.value), counted[kind.value, state.value])
        yield targets


for collector in (FleetCollector(), *RECEIVER):
    REGISTRY.register(collector)
