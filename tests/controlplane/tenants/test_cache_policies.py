from __future__ import annotations

import pytest

from controlplane.configs import publisher
from controlplane.core.changes import SYSTEM, sections, unit_of_work
from controlplane.tenants.models import CachePolicy
from tests.controlplane.core.configuration import compiled
from wire import snapshot
from wire.problems import type_problems

MODEL = {"name": "acme/embed", "max_context_tokens": 8192}


@pytest.fixture
def model(admin):
    assert admin.post("/models", MODEL).status_code == 201


@pytest.mark.usefixtures("model")
def test_a_policy_is_made_with_the_defaults_of_the_wire_format_and_told(operator):
    semantic = {"embedding_model": "acme/embed", "similarity_permille": 970, "time_bound": ["today"]}
    made = operator.post("/cache-policies", {"name": "faq", "exact": {"ttl_ms": 60_000}, "semantic": semantic})
    assert made.status_code == 201, made.content
    defaults = snapshot.SemanticCache(embedding_model="acme/embed")
    assert made.json()["item"]["semantic"] == {
        "embedding_model": "acme/embed",
        "similarity_permille": 970,
        "ttl_ms": defaults.ttl_ms,
        "max_entries": defaults.max_entries,
        "only_verified": defaults.only_verified,
        "time_bound": ["today"],
        "time_bound_ttl_ms": defaults.time_bound_ttl_ms,
    }
    content = compiled("cache_policies", "faq")
    assert type_problems(content, snapshot.CachePolicy) == []
    assert content["semantic"]["time_bound"] == {"today": True}
    assert content["exact"] == {"ttl_ms": 60_000, "max_entries": snapshot.ExactCache().max_entries}
    operator.patch("/cache-policies/faq", {"semantic": None})
    assert set(compiled("cache_policies", "faq")) == {"exact"}


def test_a_policy_out_of_range_is_refused_by_field(operator):
    semantic = {"similarity_permille": 1001, "only_verified": 1}
    answer = operator.post("/cache-policies", {"name": "x", "exact": {"max_entries": 0}, "semantic": semantic})
    assert {problem["path"] for problem in answer.json()["problems"]} == {
        "/exact/max_entries",
        "/semantic/embedding_model",
        "/semantic/similarity_permille",
        "/semantic/only_verified",
    }


def test_its_embedding_model_must_exist(operator):
    answer = operator.post("/cache-policies", {"name": "x", "semantic": {"embedding_model": "nobody/has-it"}})
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["rule"] == "reference"
    assert not CachePolicy.objects.exists()


def test_a_policy_in_use_is_not_deleted_and_its_users_are_named(operator, admin):
    operator.post("/cache-policies", {"name": "faq"})
    operator.post("/tenants", {"name": "acme", "cache_policy": "faq"})
    assert admin.post("/models", {**MODEL, "cache_policy": "faq"}).json()["item"]["cache_policy"] == "faq"
    assert compiled("models", "acme/embed")["cache_policy"] == "faq"
    answer = operator.delete("/cache-policies/faq")
    assert (answer.status_code, answer.json()["code"]) == (409, "in_use")
    assert "tenant 'acme'" in answer.json()["detail"]
    operator.patch("/tenants/acme", {"cache_policy": None})
    answer = operator.delete("/cache-policies/faq")
    assert answer.status_code == 422
    assert [problem["path"] for problem in answer.json()["problems"]] == ["/models/acme~1embed/cache_policy"]
    assert "'faq' does not exist" in answer.json()["detail"]
    admin.patch("/models/acme/embed", {"cache_policy": None})
    assert operator.delete("/cache-policies/faq").status_code == 200


def test_a_model_names_a_policy_that_exists(admin):
    answer = admin.post("/models", {**MODEL, "cache_policy": "nobody"})
    assert [problem["rule"] for problem in answer.json()["problems"]] == ["reference"]


@pytest.mark.usefixtures("model")
def test_what_it_compiles_into_restores_it(operator):
    operator.post("/cache-policies", {"name": "faq", "exact": {}, "semantic": {"embedding_model": "acme/embed"}})
    content = compiled("cache_policies", "faq")
    operator.delete("/cache-policies/faq")
    restore = sections["cache_policies"].restore
    assert restore is not None
    with unit_of_work(SYSTEM, "a test") as unit:
        restore(unit, "faq", content)
    assert compiled("cache_policies", "faq") == content


@pytest.mark.usefixtures("model")
def test_a_rollback_brings_back_a_policy_with_the_tenant_and_the_model_that_name_it(operator, admin):
    operator.post("/cache-policies", {"name": "faq", "semantic": {"embedding_model": "acme/embed"}})
    operator.post("/tenants", {"name": "acme", "cache_policy": "faq"})
    before = publisher.publish()
    assert before is not None
    for call, path in ((operator, "/tenants/acme"), (operator, "/cache-policies/faq"), (admin, "/models/acme/embed")):
        assert call.delete(path).status_code == 200
    publisher.publish()
    assert operator.post(f"/revisions/{before.number}/rollback").status_code == 200
    assert operator.get("/tenants/acme").json()["cache_policy"] == "faq"
