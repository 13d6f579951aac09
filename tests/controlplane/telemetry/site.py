"""The whole site with telemetry's addresses, wherever the site itself puts them."""

from django.urls import include, path

from controlplane.urls import handler404 as handler404
from controlplane.urls import urlpatterns as site

urlpatterns = [path("prometheus/api/v1/", include("controlplane.telemetry.urls")), *site]
