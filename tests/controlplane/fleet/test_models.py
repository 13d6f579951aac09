from __future__ import annotations

from controlplane.core.changes import sections
from controlplane.fleet.models import Model
from tests.controlplane.core.configuration import compiled
from tests.controlplane.fleet.conftest import MODEL, problem_paths
from wire import snapshot
from wire.problems import type_problems


def test_a_model_with_slashes_in_its_name_is_created_read_changed_and_deleted(admin):
    assert admin.post("/models", {"name": MODEL, "max_context_tokens": 8192}).status_code == 201
    assert admin.get(f"/models/{MODEL}").json()["default_max_tokens"] == 512
    changed = admin.patch(f"/models/{MODEL}", {"max_tokens": 1000}).json()
    assert changed["patch"] == {"models": {MODEL: {"max_tokens": 1000}}}
    assert admin.delete(f"/models/{MODEL}").status_code == 200
    assert not Model.objects.exists()


def test_a_model_compiles_with_its_tokenizer(upload, admin, tokenizer_file):
    digest = upload(tokenizer_file).json()["item"]["sha256"]
    admin.post("/models", {"name": MODEL, "max_context_tokens": 8192, "tokenizer": digest, "kv_bytes_per_token": 9})
    content = compiled("models", MODEL)
    assert content == {
        "max_context_tokens": 8192,
        "default_max_tokens": 512,
        "max_tokens": 4096,
        "kv_bytes_per_token": 9,
        "tokenizer": digest,
        "prompt_token_cost_micros": 0,
        "output_token_cost_micros": 0,
    }
    assert type_problems(content, snapshot.Model) == []


def test_a_tokenizer_must_have_been_uploaded(admin):
    body = {"name": MODEL, "max_context_tokens": 8192, "tokenizer": "0" * 64}
    assert problem_paths(admin.post("/models", body)) == {"/tokenizer"}
    assert problem_paths(admin.post("/models", {**body, "tokenizer": "abc"})) == {"/tokenizer"}


def test_the_default_answer_length_is_at_most_the_largest(admin):
    body = {"name": MODEL, "max_context_tokens": 8192, "default_max_tokens": 100, "max_tokens": 99}
    assert problem_paths(admin.post("/models", body)) == {"/default_max_tokens"}
    assert not Model.objects.exists()


def test_reading_a_model_does_not_read_its_tokenizer_file(upload, admin, tokenizer_file, django_assert_max_num_queries):
    digest = upload(tokenizer_file).json()["item"]["sha256"]
    admin.post("/models", {"name": MODEL, "max_context_tokens": 8192, "tokenizer": digest})
    with django_assert_max_num_queries(2) as captured:
        assert admin.get("/models").json()["items"][0]["tokenizer"] == digest
    assert "content" not in captured[-1]["sql"]


def test_a_model_in_use_is_not_deleted(fleet):
    refused = fleet.delete(f"/models/{MODEL}")
    assert (refused.status_code, refused.json()["code"]) == (409, "in_use")
    assert "pool 'short'" in refused.json()["detail"]


def test_restoring_gives_the_same_content(fleet, upload, tokenizer_file):
    from controlplane.core.changes import SYSTEM, unit_of_work

    digest = upload(tokenizer_file).json()["item"]["sha256"]
    section = sections["models"]
    before = section.compile(MODEL)
    fleet.patch(f"/models/{MODEL}", {"tokenizer": digest, "max_tokens": 9000})
    with unit_of_work(SYSTEM, "a test") as unit:
        assert section.restore is not None
        section.restore(unit, MODEL, before)
    assert section.compile(MODEL) == before


def test_a_model_may_be_an_adapter_and_no_pool_is_of_it_alone(admin):
    made = admin.post("/models", {"name": "sql", "max_context_tokens": 8192, "adapter": "sql-lora"})
    assert made.json()["patch"]["models"]["sql"]["adapter"] == "sql-lora"
    answer = admin.post("/pools", {"name": "sql", "model": "sql"})
    assert (answer.status_code, answer.json()["problems"][0]["rule"]) == (422, "adapter")
    assert "'sql' is the adapter 'sql-lora'" in answer.json()["detail"]


def test_a_route_of_an_adapter_to_a_pool_without_it_is_refused_by_name(admin):
    admin.post("/models", {"name": "base", "max_context_tokens": 8192})
    admin.post("/pools", {"name": "plain", "model": "base"})
    admin.post("/routes", {"name": "sql", "match": {"models": ["base"]}, "pools": {"plain": 1000}})
    admin.post("/models", {"name": "sql", "max_context_tokens": 8192, "adapter": "sql-lora"})
    answer = admin.patch("/routes/sql", {"match": {"models": ["sql"]}})
    assert answer.json()["problems"][0]["path"] == "/routes/sql/pools/plain"
    assert "pool 'plain' does not hold the adapter 'sql-lora'" in answer.json()["detail"]
    # A model that is made an adapter while a route leads elsewhere, too.
    answer = admin.patch("/models/base", {"adapter": "other"})
    assert {problem["path"] for problem in answer.json()["problems"]} >= {"/pools/plain/model"}


def test_the_budget_of_a_cold_start_is_kept_by_phase_and_stands_in_the_document(admin):
    budget = {"load_weights": 60_000, "total": 120_000}
    made = admin.post("/models", {"name": "base", "max_context_tokens": 8192, "cold_start_budget_ms": budget})
    assert made.json()["item"]["cold_start_budget_ms"] == budget
    assert admin.get("/config?format=json").json()["models"]["base"]["cold_start_budget_ms"] == budget
    answer = admin.patch("/models/base", {"cold_start_budget_ms": {"Load Weights": 1, "total": 0}})
    assert {problem["path"] for problem in answer.json()["problems"]} == {
        "/cold_start_budget_ms/Load Weights",
        "/cold_start_budget_ms/total",
    }


def test_an_adapter_is_served_by_a_pool_that_lists_it_as_long_as_it_is_routed_there(admin):
    admin.post("/models", {"name": "base", "max_context_tokens": 8192})
    admin.post("/models", {"name": "sql", "max_context_tokens": 8192, "adapter": "sql-lora"})
    pool = {"name": "adapted", "model": "base", "adapters": {"sql-lora": "/srv/adapters/sql"}}
    assert admin.post("/pools", pool).status_code == 201
    made = admin.post("/routes", {"name": "sql", "match": {"models": ["sql"]}, "pools": {"adapted": 1000}})
    assert made.status_code == 201, made.content
    answer = admin.patch("/pools/adapted", {"adapters": {}})
    assert [problem["path"] for problem in answer.json()["problems"]] == ["/routes/sql/pools/adapted"]
    answer = admin.patch("/models/sql", {"adapter": "another"})
    assert [problem["path"] for problem in answer.json()["problems"]] == ["/routes/sql/pools/adapted"]
    asked = {"model": "sql", "tenant": "acme", "priority_class": "chat", "prompt_tokens": 1, "max_tokens": 1}
    assert admin.post("/routes/test", asked).json()["pools"] == {"adapted": 1000}
