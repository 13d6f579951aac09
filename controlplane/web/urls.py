"""Addresses of the pages."""

from django.urls import URLPattern, path
from django.views.i18n import set_language

from controlplane.web.live import live
from controlplane.web.views import convergence, keys, revisions, session, targets, tenants

app_name = "web"
urlpatterns: list[URLPattern] = [
    path("", tenants.home, name="home"),
    path("log-in/", session.LogIn.as_view(), name="login"),
    path("log-out/", session.LogOut.as_view(), name="logout"),
    path("language/", set_language, name="set_language"),
    path("live", live, name="live"),
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
