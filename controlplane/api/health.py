"""Whether the process lives, whether it can serve, and what it measures of itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus

from django.db import Error
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_GET
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from controlplane.api.database_check import database_check
from controlplane.configs import target_gauges
from controlplane.configs.hub import heads, hub
from controlplane.configs.metrics import REGISTRY
from controlplane.core import gauges
from controlplane.core.errors import Refused
from controlplane.core.security import metrics_reader
from controlplane.core.tokens import bearer
from controlplane.telemetry.metrics import RECEIVER

log = logging.getLogger(__name__)


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
    """Prometheus text format. Who sends an API token also gets what names nodes, gateways, pools, tenants, people."""
    pages = [generate_latest(REGISTRY), generate_latest(_Read(target_gauges.counts))]
    if bearer(request.headers.get("authorization")) is not None:
        try:
            metrics_reader(request)
            pages.append(generate_latest(_Read(lambda: gauges.families(timezone.now()))))
        except Refused as refused:
            return HttpResponse(f"{refused.detail}\n", status=refused.status, content_type="text/plain")
        except Error as error:
            log.warning("whose token it is cannot be read: %s", error)
    return HttpResponse(b"".join(pages), content_type=CONTENT_TYPE_LATEST)


class _Read(Collector):
    """Families that are read when asked for. With the database away they are absent, not 0."""

    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        try:
            yield from list(self._read())
        except Error as error:
            log.warning("metrics cannot be read: %s", error)


class StreamCollector(Collector):
    """What this process holds."""

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("headworks_config_streams", "Config streams open in this process.", len(hub.streams))


for collector in (StreamCollector(), *RECEIVER):
    REGISTRY.register(collector)
