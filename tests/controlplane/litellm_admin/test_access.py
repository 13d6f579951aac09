"""Who may make LiteLLM-shaped calls, by role, by tenant and by the scopes of a token."""

from __future__ import annotations

import runpy
from typing import Any, NamedTuple

import pytest
from django.urls import Resolver404
from django.urls.resolvers import RegexPattern, URLResolver

from controlplane import urls as site_urls
from controlplane.core.models import AuditEntry, Role
from controlplane.litellm_admin import urls
from controlplane.tenants.models import Tenant, TenantKey
from tests.controlplane.core.people import person, token_of
from tests.controlplane.litellm_admin.calls import Script, refusal

pytestmark = pytest.mark.django_db


class Call(NamedTuple):
    method: str
    path: str
    needs: Role
    body: dict[str, Any]


KEY = {"key": "999"}
CALLS = [
    Call("POST", "/key/generate", Role.OPERATOR, {"team_id": "none"}),
    Call("POST", "/key/update", Role.OPERATOR, KEY),
    Call("POST", "/key/block", Role.OPERATOR, KEY),
    Call("POST", "/key/unblock", Role.OPERATOR, KEY),
    Call("POST", "/key/delete", Role.OPERATOR, {"keys": ["999"]}),
    Call("GET", "/key/info?key=999", Role.VIEWER, {}),
    Call("POST", "/team/new", Role.OPERATOR, {"team_id": "-"}),
    Call("POST", "/team/update", Role.OPERATOR, {"team_id": "none"}),
    Call("POST", "/team/delete", Role.OPERATOR, {"team_ids": ["none"]}),
    Call("GET", "/team/info?team_id=none", Role.VIEWER, {}),
]


def made(script: Script, call: Call) -> Any:
    return script.get(call.path) if call.method == "GET" else script.post(call.path, call.body)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.path)
def test_a_call_takes_its_role_and_no_lesser(rest_of, call):
    assert refusal(made(Script(rest_of(None)), call), 401)["type"] == "auth_error"
    for role in Role:
        answer = made(Script(rest_of(role)), call)
        if role.covers(call.needs):
            assert answer.status_code in {404, 422}, answer.content
        else:
            assert refusal(answer, 403)["type"] == "auth_error"
    assert not AuditEntry.objects.exists()


def test_the_table_has_every_call():
    served = {str(pattern.pattern) for pattern in urls.urlpatterns}
    # ninja's own, the empty one, answers nothing.
    assert {call.path.partition("?")[0].removeprefix("/") for call in CALLS} == served - {""}


@pytest.fixture
def fleet(admin):
    """Two teams with a key each: name → the key."""
    script = Script(admin)
    keys = {}
    for name in ("acme", "beta"):
        assert script.post("/team/new", {"team_id": name, "tpm_limit": 1000}).status_code == 200
        keys[name] = script.post("/key/generate", {"team_id": name, "key_alias": f"{name}-key"}).json()["key"]
    return keys


def test_people_of_a_tenant_manage_its_keys_and_find_no_others(fleet):
    theirs = Script(token_of(person(tenants=["acme"])))
    assert theirs.get("/team/info?team_id=acme").status_code == 200
    assert theirs.post("/key/generate", {"team_id": "acme"}).status_code == 200
    assert theirs.post("/key/block", {"key": fleet["acme"]}).json()["blocked"] is True
    assert theirs.post("/team/update", {"team_id": "acme", "tpm_limit": 500}).status_code == 200
    refusal(theirs.post("/team/update", {"team_id": "acme", "tpm_limit": 5000}), 403)
    other = fleet["beta"]
    for call in (
        theirs.get("/team/info?team_id=beta"),
        theirs.get(f"/key/info?key={other}"),
        theirs.post("/team/update", {"team_id": "beta", "tpm_limit": 1}),
        theirs.post("/key/generate", {"team_id": "beta"}),
        theirs.post("/key/block", {"key": other}),
        theirs.post("/key/delete", {"key_aliases": ["beta-key"]}),
    ):
        refusal(call, 404)
    refusal(theirs.post("/team/new", {"team_id": "gamma"}), 403)
    refusal(theirs.post("/team/delete", {"team_ids": ["acme"]}), 403)
    assert not TenantKey.objects.get(tenant__name="beta").blocked
    assert Tenant.objects.count() == 2


def test_an_operator_of_the_whole_fleet_blocks_a_key_and_is_told_who_does_the_rest(fleet, operator):
    script, key = Script(operator), {"key": fleet["acme"]}
    assert script.post("/key/update", {**key, "duration": "1h"}).json()["expires"]
    assert script.post("/key/block", key).json()["blocked"] is True
    before = list(TenantKey.objects.order_by("pk").values())
    for path, body, param in (
        ("/key/generate", {"team_id": "acme"}, ""),
        ("/key/unblock", key, "blocked"),
        ("/key/update", {**key, "duration": "2h"}, "expires_at"),
        ("/key/update", {**key, "key_alias": "mine"}, "label"),
        ("/key/delete", {"keys": [fleet["acme"]]}, ""),
        ("/team/delete", {"team_ids": ["acme"]}, ""),
    ):
        error = refusal(script.post(path, body), 403)
        assert (error["type"], error["param"]) == ("auth_error", param), path
        assert "needs the role admin; yours is operator" in error["message"]
    assert list(TenantKey.objects.order_by("pk").values()) == before


def test_a_token_makes_the_calls_of_its_scopes(fleet):
    script = Script(token_of(person(), scopes=["keys"]))
    assert script.get(f"/key/info?key={fleet['acme']}").status_code == 200
    assert "tenants" in refusal(script.get("/team/info?team_id=acme"), 403)["message"]


@pytest.mark.parametrize(("chosen", "found"), [("true", True), ("false", False)])
def test_the_calls_stand_at_the_root_where_that_is_set(monkeypatch, chosen, found):
    monkeypatch.setenv("HEADWORKS_LITELLM_AT_ROOT", chosen)
    site = URLResolver(RegexPattern("^/"), runpy.run_path(site_urls.__file__)["urlpatterns"])
    assert site.resolve("/api/litellm/key/generate")
    for path in ("/key/generate", "/team/info"):
        if found:
            assert site.resolve(path).func == site.resolve(f"/api/litellm{path}").func
        else:
            with pytest.raises(Resolver404):
                site.resolve(path)
