"""Other names of models: what they compile into, and what they may not be."""

from __future__ import annotations

import pytest

from controlplane.configs import publisher
from controlplane.fleet.models import Alias, Model
from tests.controlplane.core.configuration import compiled
from wire import snapshot
from wire.problems import type_problems

ALIAS = {"name": "gpt/small", "model": "org/llama"}


@pytest.fixture(autouse=True)
def _model(admin):
    assert admin.post("/models", {"name": "org/llama", "max_context_tokens": 8192}).status_code == 201


def first_problem(answer):
    assert answer.status_code == 422, answer.content
    problem = answer.json()["problems"][0]
    return problem["path"], problem["rule"]


def test_an_alias_compiles_into_its_wire_form(admin):
    made = admin.post("/aliases", ALIAS)
    assert made.json()["patch"] == {"aliases": {"gpt/small": {"model": "org/llama"}}}
    content = compiled("aliases", "gpt/small")
    assert type_problems(content, snapshot.Alias) == []
    assert admin.get("/aliases/gpt/small").json() == ALIAS
    assert admin.get("/aliases").json() == {"items": [ALIAS], "next": None}


def test_an_alias_is_turned_to_another_model(admin):
    admin.post("/aliases", ALIAS)
    admin.post("/models", {"name": "org/next", "max_context_tokens": 8192})
    answer = admin.patch("/aliases/gpt/small", {"model": "org/next"})
    assert answer.json()["patch"] == {"aliases": {"gpt/small": {"model": "org/next"}}}


def test_an_alias_of_nothing_is_refused(admin):
    assert first_problem(admin.post("/aliases", {**ALIAS, "model": "nobody"})) == ("/model", "reference")
    assert not Alias.objects.exists()


def test_an_alias_of_an_alias_is_refused(admin):
    admin.post("/aliases", ALIAS)
    assert first_problem(admin.post("/aliases", {"name": "b", "model": "gpt/small"})) == ("/model", "reference")


def test_no_alias_takes_the_name_of_a_model(admin):
    answer = admin.post("/aliases", {"name": "org/llama", "model": "org/llama"})
    assert first_problem(answer) == ("/aliases/org~1llama", "unique")
    assert not Alias.objects.exists()


def test_no_model_takes_the_name_of_an_alias(admin):
    admin.post("/aliases", ALIAS)
    answer = admin.post("/models", {"name": "gpt/small", "max_context_tokens": 8192})
    assert first_problem(answer) == ("/aliases/gpt~1small", "unique")
    assert not Model.objects.filter(name="gpt/small").exists()


def test_a_model_that_an_alias_stands_for_stays(admin):
    admin.post("/aliases", ALIAS)
    answer = admin.delete("/models/org/llama")
    assert (answer.status_code, answer.json()["code"]) == (409, "in_use")
    assert "alias 'gpt/small'" in answer.json()["detail"]
    assert admin.delete("/aliases/gpt/small").json()["patch"] == {"aliases": {"gpt/small": None}}
    assert admin.delete("/models/org/llama").status_code == 200


def test_a_rollback_turns_an_alias_back_into_the_model_that_it_was(admin):
    admin.post("/models", {"name": "gpt/small", "max_context_tokens": 2048})
    before = publisher.publish()
    assert before is not None
    admin.delete("/models/gpt/small")
    assert admin.post("/aliases", ALIAS).status_code == 201
    publisher.publish()
    answer = admin.post(f"/revisions/{before.number}/rollback")
    assert answer.status_code == 200, answer.content
    assert not Alias.objects.exists()
    assert admin.get("/models/gpt/small").json()["max_context_tokens"] == 2048


def test_one_write_turns_a_model_into_an_alias_of_its_successor(admin):
    document = admin.get("/config?format=json").json()
    document["models"]["org/next"] = document["models"].pop("org/llama")
    document["aliases"]["org/llama"] = {"model": "org/next"}
    answer = admin.put("/config?allow_removals=true", document)
    assert answer.status_code == 200, answer.content
    assert admin.get("/aliases/org/llama").json() == {"name": "org/llama", "model": "org/next"}
    assert admin.get("/models/org/llama").status_code == 404
