"""Addresses of the dashboards: a page a layer, the live stream, and what Dash asks for of each page."""

from django.urls import URLPattern, path

from controlplane.core.models import Role
from dashboards.charts import LAYERS
from dashboards.dash_app import PREFIX, app
from dashboards.export import chart_csv
from dashboards.stream import live
from dashboards.views import home

app_name = "dashboards"
urlpatterns: list[URLPattern] = [
    path("live", live, name="live"),
    path("<slug:name>.csv", chart_csv, name="chart_csv"),
    *(path(layer.path, home, name=layer.view) for layer in LAYERS),
    *(route for layer in LAYERS for route in app.server.urls(PREFIX, Role.VIEWER, layer.path)),
]
