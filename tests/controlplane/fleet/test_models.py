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
