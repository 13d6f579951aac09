"""Addresses of the pages."""

from django.urls import URLPattern, path
from django.views.i18n import set_language

from controlplane.web.live import live
from controlplane.web.views import (
    convergence,
    fleet,
    incidents,
    keys,
    policy,
    receivers,
    revisions,
    session,
    targets,
    tenants,
)

app_name = "web"
urlpatterns: list[URLPattern] = [
    path("", fleet.home, name="home"),
    path("log-in/", session.LogIn.as_view(), name="login"),
    path("log-out/", session.LogOut.as_view(), name="logout"),
    path("language/", set_language, name="set_language"),
    path("live", live, name="live"),
    path("fleet/", fleet.fleet, name="fleet"),
    path("fleet-panel/", fleet.panel, name="fleet_panel"),
    path("fleet/<str:name>/", fleet.node, name="node"),
    path("fleet/<str:name>/cordon/", fleet.cordon_node, name="cordon_node"),
    path("fleet/<str:name>/uncordon/", fleet.uncordon_node, name="uncordon_node"),
    path("engines/<str:name>/cordon/", fleet.cordon_engine, name="cordon_engine"),
    path("engines/<str:name>/uncordon/", fleet.uncordon_engine, name="uncordon_engine"),
    path("incidents/", incidents.incidents, name="incidents"),
    path("incidents/<int:incident_id>/", incidents.incident, name="incident"),
    path("incidents/<int:incident_id>/resolve/", incidents.resolve_incident, name="resolve_incident"),
    path("cordon-policy/edit/", policy.edit_policy, name="edit_policy"),
    path("receivers/", receivers.receivers, name="receivers"),
    path("receivers-new/", receivers.new_receiver, name="new_receiver"),
    path("receivers/<str:name>/edit/", receivers.edit_receiver, name="edit_receiver"),
    path("receivers/<str:name>/switch/", receivers.switch_receiver, name="switch_receiver"),
    path("receivers/<str:name>/rotate-secret/", receivers.rotate_secret, name="rotate_secret"),
    path("receivers/<str:name>/test/", receivers.test_receiver, name="test_receiver"),
    path("deliveries/<uuid:delivery_id>/resend/", receivers.resend_delivery, name="resend_delivery"),
    path("convergence/", convergence.panel, name="convergence"),
    path("tenants/", tenants.tenants, name="tenants"),
    path("tenants-new/", tenants.new_tenant, name="new_tenant"),
    path("tenants/<str:name>/", tenants.tenant, name="tenant"),
    path("tenants/<str:name>/edit/", tenants.edit_tenant, name="edit_tenant"),
    path("tenants/<str:name>/keys/new/", keys.new_key, name="new_key"),
    path("tenants/<str:name>/keys/<int:key_id>/block/", keys.block_key, name="block_key"),
    path("tenants/<str:name>/keys/<int:key_id>/unblock/", keys.unblock_key, name="unblock_key"),
    path("targets/", targets.targets, name="targets"),
    path("targets/panel/", targets.panel, name="targets_panel"),
    path("targets/join/", targets.join, name="join"),
    path("targets/<int:target_id>/revoke/", targets.revoke, name="revoke"),
    path("revisions/", revisions.revisions, name="revisions"),
    path("revisions/panel/", revisions.panel, name="revisions_panel"),
    path("revisions/<int:number>/", revisions.revision, name="revision"),
    path("revisions/<int:number>/rollback/", revisions.roll_back, name="rollback"),
]
