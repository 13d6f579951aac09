"""Addresses under /prometheus/. Writes are answered beside Django (ingest.py)."""

from django.urls import URLPattern, path, re_path

from controlplane.telemetry import federation, http_api

urlpatterns: list[URLPattern] = [
    path("", http_api.front),
    path("federate", federation.federate),
    path("api/v1/query", http_api.instant_query),
    path("api/v1/query_range", http_api.range_query),
    path("api/v1/series", http_api.series),
    path("api/v1/labels", http_api.label_names),
    path("api/v1/label/<str:name>/values", http_api.label_values),
    path("api/v1/metadata", http_api.metadata),
    path("api/v1/status/buildinfo", http_api.build_information),
    re_path(r"^(?P<rest>.*)$", http_api.unknown),
]
