"""Addresses of the dashboards: the page, its live stream, and what Dash asks for."""

from django.urls import URLPattern, path

from controlplane.core.models import Role
from dashboards.dash_app import PREFIX, app
from dashboards.stream import live
from dashboards.views import home

app_name = "dashboards"
urlpatterns: list[URLPattern] = [
    path("", home, name="home"),
    path("live", live, name="live"),
    *app.server.urls(PREFIX, Role.VIEWER),
]
