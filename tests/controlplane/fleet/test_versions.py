"""Versions of a model: the family follows the newest, and what is retired serves no more."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from controlplane.core.models import AuditEntry
from controlplane.fleet.models import Act, Engine, ModelVersion
from controlplane.fleet.services import take_report
from tests.controlplane.core.configuration import compiled
from tests.controlplane.fleet.conftest import enrolled, problem_paths
from wire.messages import EngineReport, NodeReport

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def models(admin):
    """Two models, each with a pool, a node and an engine."""
    for name in ("v1", "v2"):
        made = [
            admin.post("/models", {"name": f"chat-{name}", "max_context_tokens": 8192}),
            admin.post("/pools", {"name": name, "model": f"chat-{name}"}),
            admin.post("/nodes", {"name": f"n-{name}"}),
            admin.post(
                "/engines",
                {"name": f"e-{name}", "url": f"http://{name}:8000", "pool": name, "served_model": "m"}
                | {"node": f"n-{name}"},
            ),
            admin.post(
                "/routes", {"name": name, "match": {"models": [f"chat-{name}"]}, "pools": {name: 1000}}
            ),
        ]  # fmt: skip
        assert [answer.status_code for answer in made] == [201] * 5, [answer.content for answer in made]
    return admin


def published(admin, version, family="chat"):
    answer = admin.post("/model-versions", {"family": family, "version": version, "model": f"chat-{version}"})
    assert answer.status_code == 201, answer.content
    return answer.json()["item"]["id"]


def refusal(answer):
    return answer.status_code, answer.json()["code"], answer.json()["detail"]


def test_a_family_follows_the_version_that_was_published_last(models):
    published(models, "v1")
    answer = models.post("/model-versions", {"family": "chat", "version": "v2", "model": "chat-v2"})
    assert answer.json()["patch"] == {"aliases": {"chat": {"model": "chat-v2"}}}
    listed = models.get("/model-versions?family=chat").json()["items"]
    assert [(row["version"], row["newest"]) for row in listed] == [("v2", True), ("v1", False)]
    assert models.get("/model-versions?family=other").json()["items"] == []
    noted = AuditEntry.objects.filter(noun="model version").order_by("pk").values_list("key", flat=True)
    assert list(noted) == ["chat v1", "chat v2"]


def test_a_dry_run_publishes_nothing(models):
    answer = models.post("/model-versions?dry_run=true", {"family": "chat", "version": "v1", "model": "chat-v1"})
    assert answer.json()["patch"] == {"aliases": {"chat": {"model": "chat-v1"}}}
    assert not ModelVersion.objects.exists()


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"model": "nobody"}, "/model"),
        ({"family": "chat-v2"}, "/family"),
        ({"version": "v 1"}, "/version"),
        ({"version": ""}, "/version"),
    ],
)
def test_what_is_no_version_is_refused_at_its_place(models, fields, path):
    body = {"family": "chat", "version": "v1", "model": "chat-v1", **fields}
    assert problem_paths(models.post("/model-versions", body)) == {path}


def test_a_version_and_a_model_are_each_published_once(models):
    published(models, "v1")
    same = models.post("/model-versions", {"family": "chat", "version": "v1", "model": "chat-v2"})
    assert refusal(same)[0] == 409
    assert "'chat v1' is published already, as model 'chat-v1'" in refusal(same)[2]
    again = models.post("/model-versions", {"family": "chat", "version": "v2", "model": "chat-v1"})
    assert "model 'chat-v1' is 'chat v1' already" in refusal(again)[2]


def test_the_newest_that_is_taken_back_leaves_the_one_before_it(models):
    published(models, "v1")
    second = published(models, "v2")
    assert models.delete(f"/model-versions/{second}").json()["patch"] == {"aliases": {"chat": {"model": "chat-v1"}}}
    first = ModelVersion.objects.get()
    assert models.delete(f"/model-versions/{first.pk}").json()["patch"] == {"aliases": {"chat": None}}
    assert models.get("/models/chat-v1").status_code == 200


def test_a_family_that_somebody_pointed_elsewhere_is_left_there(models):
    version = published(models, "v1")
    models.patch("/aliases/chat", {"model": "chat-v2"})
    models.delete(f"/model-versions/{version}")
    assert compiled("aliases", "chat") == {"model": "chat-v2"}


def test_the_newest_is_never_retired(models):
    version = published(models, "v1")
    status, code, detail = refusal(models.post(f"/model-versions/{version}/retire"))
    assert (status, code) == (409, "newest")
    assert "'chat v1'" in detail


def test_a_retired_version_takes_no_work_and_is_stopped_as_its_node_allows(models):
    first = published(models, "v1")
    published(models, "v2")
    enrolled(models, "n-v1")
    allowed = {"e-v1": ["drain", "stop", "start", "sleep"]}
    take_report("n-v1", NodeReport("1", engines=[EngineReport("e-v1", "up")], allowed_acts=allowed), NOW)
    answer = models.post(f"/model-versions/{first}/retire")
    assert answer.json()["patch"]["engines"] == {"e-v1": {"cordoned": True}}
    assert answer.json()["item"]["retired_at"] is not None
    assert list(Act.objects.order_by("pk").values_list("action", flat=True)) == ["drain", "stop"]
    assert models.get("/engines/e-v1").json()["held_out_by"] == f"retired version {first}"
    assert models.post(f"/model-versions/{first}/retire").json()["changed"] is False
    status, code, detail = refusal(models.delete(f"/model-versions/{first}"))
    assert (status, code) == (409, "in_use")
    assert "e-v1" in detail


def test_a_version_that_is_brought_back_takes_work_again(models):
    first = published(models, "v1")
    published(models, "v2")
    enrolled(models, "n-v1")
    models.post(f"/model-versions/{first}/retire")
    take_report("n-v1", NodeReport("1", engines=[EngineReport("e-v1", "down")], allowed_acts={"e-v1": ["start"]}), NOW)
    answer = models.post(f"/model-versions/{first}/bring-back")
    assert answer.json()["patch"]["engines"] == {"e-v1": {"cordoned": False}}
    assert list(Act.objects.values_list("action", flat=True)) == ["start"]
    assert compiled("aliases", "chat") == {"model": "chat-v2"}
    assert models.delete(f"/model-versions/{first}").status_code == 200


def test_where_the_node_allows_a_sleep_alone_it_is_put_to_sleep_and_woken(models):
    first = published(models, "v1")
    published(models, "v2")
    enrolled(models, "n-v1")
    allowed = {"e-v1": ["drain", "sleep", "wake"]}
    take_report("n-v1", NodeReport("1", engines=[EngineReport("e-v1", "up")], allowed_acts=allowed), NOW)
    models.post(f"/model-versions/{first}/retire")
    report = EngineReport("e-v1", "up", condition="sleeping")
    take_report("n-v1", NodeReport("1", engines=[report], allowed_acts=allowed), NOW)
    models.post(f"/model-versions/{first}/bring-back")
    assert list(Act.objects.order_by("pk").values_list("action", flat=True)) == ["drain", "sleep", "wake"]


def test_an_act_that_cannot_be_asked_for_is_told_and_the_version_is_retired_all_the_same(models):
    first = published(models, "v1")
    published(models, "v2")
    take_report("n-v1", NodeReport("1", allowed_acts={"e-v1": ["drain", "stop"]}), NOW)
    answer = models.post(f"/model-versions/{first}/retire").json()
    assert [warning["rule"] for warning in answer["warnings"] if warning["rule"] == "no_act"] == ["no_act"] * 2
    assert Engine.objects.get(name="e-v1").takes_no_work


def test_a_pinned_version_is_neither_deleted_nor_retired_nor_its_model(models):
    first = published(models, "v1")
    published(models, "v2")
    assert models.post("/tenants", {"name": "acme", "pins": {"chat": "chat-v1"}}).status_code == 201
    for answer in (models.delete(f"/model-versions/{first}"), models.post(f"/model-versions/{first}/retire")):
        status, code, detail = refusal(answer)
        assert (status, code) == (409, "in_use")
        assert "tenant 'acme' is pinned to it" in detail
    for path in ("/engines/e-v1", "/routes/v1", "/engines/e-v1", "/pools/v1"):
        models.delete(path)
    answer = models.delete("/models/chat-v1")
    assert problem_paths(answer) == {"/tenants/acme/pins/chat"}
    models.patch("/tenants/acme", {"pins": {}})
    assert models.delete(f"/model-versions/{first}").status_code == 200


def test_a_pin_names_a_version_of_its_family_that_serves(models):
    first = published(models, "v1")
    published(models, "v2")
    models.post("/models", {"name": "poem", "max_context_tokens": 8192})
    models.post("/tenants", {"name": "acme"})
    models.post(f"/model-versions/{first}/retire")
    told = {}
    for model in ("poem", "chat-v1"):
        answer = models.patch("/tenants/acme", {"pins": {"chat": model}})
        (problem,) = answer.json()["problems"]
        assert problem["path"] == "/tenants/acme/pins/chat"
        told[problem["rule"]] = problem["message"]
    assert told == {
        "reference": "'poem' is no version of 'chat'; there are chat-v2",
        "retired": "'chat-v1' is a retired version of 'chat'; bring it back first",
    }
    assert models.patch("/tenants/acme", {"pins": {"chat": "chat-v2"}}).status_code == 200


def test_a_pin_from_before_there_were_versions_does_not_bar_other_edits_of_its_tenant(models):
    models.post("/aliases", {"name": "chat", "model": "chat-v2"})
    assert models.post("/tenants", {"name": "acme", "pins": {"chat": "chat-v1"}}).status_code == 201
    published(models, "v2")
    assert models.patch("/tenants/acme", {"weight": 7}).status_code == 200


def test_a_text_of_the_configuration_is_held_to_the_versions_that_there_are_and_else_to_its_aliases(models):
    published(models, "v2")
    document = {**models.get("/config").json(), "tenants": {"acme": {"pins": {"chat": "chat-v1"}}}}
    refused = models.put("/config?reason=restored", document)
    assert problem_paths(refused) == {"/tenants/acme/pins/chat"}
    ModelVersion.objects.all().delete()
    applied = models.put("/config?reason=restored", document)
    assert (applied.status_code, applied.json()["patch"]["tenants"]["acme"]["pins"]) == (200, {"chat": "chat-v1"})


def unready(answer):
    return [warning["message"] for warning in answer.json()["warnings"] if warning["rule"] == "unready"]


def test_publishing_warns_of_what_nothing_serves_and_nobody_may_use(models):
    published(models, "v1")
    models.post("/tenants", {"name": "acme", "models": ["chat-v1"]})
    models.post("/tenants", {"name": "follows", "models": ["chat-v1", "chat"]})
    models.post("/models", {"name": "chat-v3", "max_context_tokens": 8192})
    bare = {"family": "chat", "version": "v3", "model": "chat-v3"}
    tried = models.post("/model-versions?dry_run=true", bare)
    assert unready(tried) == [
        "no pool serves model 'chat-v3': requests for 'chat' are refused until one does",
        "these tenants may use neither 'chat' nor 'chat-v3', and are refused it: acme; allow them 'chat'",
    ]
    models.post("/pools", {"name": "v3", "model": "chat-v3"})
    assert unready(models.post("/model-versions?dry_run=true", bare))[0].startswith("no route leads to a pool of model")
    models.patch("/pools/v1", {"adapters": {"sql": "/adapters/sql"}})
    models.post("/models", {"name": "sql", "max_context_tokens": 8192, "adapter": "sql"})
    assert len(unready(models.post("/model-versions?dry_run=true", {**bare, "model": "sql"}))) == 1
    models.patch("/tenants/acme", {"models": ["chat"]})
    assert unready(models.post("/model-versions", {**bare, "version": "v2", "model": "chat-v2"})) == []


def test_a_version_brought_back_when_no_other_is_left_is_what_its_family_gets(models):
    first = published(models, "v1")
    second = published(models, "v2")
    models.post(f"/model-versions/{first}/retire")
    assert models.delete(f"/model-versions/{second}").status_code == 200
    assert models.get("/aliases/chat").status_code == 404
    models.post(f"/model-versions/{first}/bring-back")
    assert compiled("aliases", "chat") == {"model": "chat-v1"}


def test_a_version_whose_pools_serve_other_requests_is_not_retired(models):
    first = published(models, "v1")
    published(models, "v2")
    models.post("/routes", {"name": "all", "order": 9, "pools": {"v2": 1000}, "fallbacks": {"v1": 0}})
    status, code, detail = refusal(models.post(f"/model-versions/{first}/retire"))
    assert (status, code) == (409, "in_use")
    assert "route 'all' leads other requests to its pool 'v1'" in detail


def test_a_version_that_does_not_exist_is_not_found(models):
    assert models.get("/model-versions/999").status_code == 404
    assert models.post("/model-versions/999/retire").status_code == 404
