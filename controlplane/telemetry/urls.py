"""Addresses under /prometheus/api/v1/."""

from django.urls import URLPattern, path, re_path

from controlplane.telemetry import http_api

urlpatterns: list[URLPattern] = [
    path("write", http_api.write),
    path("query", http_api.instant_query),
    path("query_range", http_api.range_query),
    path("series", http_api.series),
    path("labels", http_api.label_names),
    path("label/<str:name>/values", http_api.label_values),
    path("status/buildinfo", http_api.build_information),
    re_path(r"^(?P<rest>.*)$", http_api.unknown),
]
