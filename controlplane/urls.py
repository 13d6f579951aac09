"""The site's addresses: pages, REST, and what watches the process. The config stream stands beside Django (asgi.py)."""

from django.urls import URLPattern, URLResolver, include, path

from controlplane import settings_rows as rows
from controlplane.api.api import api
from controlplane.api.health import healthz, metrics, readyz

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", healthz),
    path("readyz", readyz),
    path("metrics", metrics),
    path("api/v1/", api.urls),
    path("api/litellm/", include("controlplane.litellm_admin.urls")),
    path("prometheus/", include("controlplane.alerts.prometheus_urls")),
    path("prometheus/", include("controlplane.telemetry.urls")),
    path("dashboards/", include("dashboards.urls")),
    path("", include("controlplane.web.urls")),
]
if rows.LITELLM_AT_ROOT.read():
    urlpatterns.append(path("", include("controlplane.litellm_admin.urls")))

handler404 = "controlplane.api.not_found.not_found"
handler500 = "controlplane.api.failed.failed"
