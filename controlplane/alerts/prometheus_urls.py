"""Addresses under /prometheus/ of rules and alerts, before telemetry's, which answer all others."""

from django.urls import URLPattern, path

from controlplane.alerts import prometheus_api

urlpatterns: list[URLPattern] = [
    path("api/v1/rules", prometheus_api.rules),
    path("api/v1/alerts", prometheus_api.alerts),
]
