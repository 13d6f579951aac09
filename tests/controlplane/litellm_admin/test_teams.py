from __future__ import annotations

import pytest

from controlplane.core.models import AuditEntry
from controlplane.litellm_admin import unheld
from controlplane.tenants.models import Tenant, TenantKey
from tests.controlplane.litellm_admin.calls import Script, refusal

pytestmark = pytest.mark.django_db
MODEL = {"name": "team/chat", "max_context_tokens": 4096, "max_tokens": 1024}


@pytest.fixture
def script(admin):
    return Script(admin)


def test_a_team_is_a_tenant(script, operator, admin):
    assert admin.post("/models", MODEL).status_code == 201
    body = {
        "team_alias": "acme", "tpm_limit": 1000, "rpm_limit": 60, "max_parallel_requests": 4, "models": ["team/chat"],
    }  # fmt: skip
    made = script.post("/team/new", body).json()
    assert made.pop("created_at")
    assert made == {"team_id": "acme", **body, "blocked": False}
    tenant = operator.get("/tenants/acme").json()
    assert (tenant["tpm_limit"], tenant["models"]) == (1000, ["team/chat"])
    info = script.get("/team/info?team_id=acme").json()
    assert (info["team_info"]["models"], info["keys"], info["next"]) == (["team/chat"], [], None)


def test_what_is_given_changes_and_the_rest_stays(script, operator):
    operator.post("/tenants", {"name": "acme", "weight": 3, "tpm_limit": 5, "rpm_limit": 6, "daily_token_budget": 9})
    answer = script.post("/team/update", {"team_id": "acme", "tpm_limit": 7, "blocked": True}).json()
    assert (answer["team_id"], answer["data"]["tpm_limit"], answer["data"]["blocked"]) == ("acme", 7, True)
    tenant = operator.get("/tenants/acme").json()
    assert (tenant["weight"], tenant["rpm_limit"], tenant["daily_token_budget"]) == (3, 6, 9)
    script.post("/team/update", {"team_id": "acme", "tpm_limit": None, "models": [], "blocked": None})
    tenant = operator.get("/tenants/acme").json()
    assert (tenant["tpm_limit"], tenant["models"], tenant["blocked"]) == (None, None, True)
    assert AuditEntry.objects.filter(reason="by a LiteLLM-shaped call").count() == 2


def test_a_team_goes_with_its_keys_all_or_none(script):
    for name in ("acme", "beta"):
        script.post("/team/new", {"team_id": name})
        script.post("/key/generate", {"team_id": name})
    refusal(script.post("/team/delete", {"team_ids": ["acme", "gamma"]}), 404)
    assert Tenant.objects.count() == 2
    assert script.post("/team/delete", {"team_ids": ["acme", "acme"]}).status_code == 200
    assert [key.tenant.name for key in TenantKey.objects.all()] == ["beta"]


def test_a_team_has_one_name_that_can_stand_in_a_url(script):
    assert refusal(script.post("/team/new", {"team_id": "a", "team_alias": "b"}), 422)["param"] == "team_alias"
    assert refusal(script.post("/team/new", {}), 422)["param"] == "team_id"
    assert refusal(script.post("/team/new", {"team_alias": "The A Team"}), 422)["param"] == "team_alias"
    assert script.post("/team/new", {"team_id": "a", "team_alias": "a"}).status_code == 200
    refusal(script.post("/team/new", {"team_id": "a"}), 409)
    refusal(script.post("/team/update", {"team_id": "b"}), 404)
    assert refusal(script.post("/team/update", {}), 422)["param"] == "team_id"
    error = refusal(script.post("/team/new", {"team_id": "x", "models": ["unknown"]}), 422)
    assert error["param"].endswith("models/unknown")
    refusal(script.get("/team/info?team_id=x"), 404)
    assert refusal(script.get("/team/info"), 422)["param"] == "team_id"


@pytest.mark.parametrize("field", sorted(unheld.OF_TEAMS))
def test_what_would_not_be_held_to_is_refused_by_name(script, field):
    for path in ("/team/new", "/team/update"):
        error = refusal(script.post(path, {"team_id": "acme", field: ["x"]}), 422)
        assert error["param"] == field
        assert "leave it out" in error["message"]
    assert not Tenant.objects.exists()
    assert script.post("/team/new", {"team_id": "acme", field: []}).status_code == 200
