"""The pages of models and aliases: what serves each, and their forms."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from controlplane.core.changes import UnitOfWork
from controlplane.fleet.models import Alias, Engine, Model
from controlplane.fleet.services import ALIASES, MODELS, POOLS
from tests.web.asking import page
from tests.web.conftest import digest_of, write
from tests.web.hardware import MODEL, add_engine, node
from tests.web.versioned import passive_version

pytestmark = pytest.mark.django_db
ADDRESS = "/models/meta-llama~Llama-3.1-8B/"
FORM = {
    "max_context_tokens": "131072", "max_tokens": "4096", "default_max_tokens": "512", "kv_bytes_per_token": "131072",
    "tokenizer": "", "chat_template": "", "cache_policy": "", "adapter": "", "prompt_token_cost_micros": "2",
    "output_token_cost_micros": "8", "manifest": "", "files_folder": "/srv/models/llama",
    "cold_start_budget_ms": "total=90000",
}  # fmt: skip


@pytest.fixture(autouse=True)
def own_store(settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path


def applied(client: Client, path: str, typed: dict[str, str]) -> str:
    reviewed = client.post(path, {**typed, "step": "review"})
    assert reviewed.status_code == 200, reviewed.content.decode()
    digest = digest_of(reviewed.content.decode())
    answer = client.post(path, {**typed, "step": "apply", "digest": digest, "reason": "a test"})
    assert answer.status_code == 302, answer.content.decode()
    return answer["Location"].partition("?")[0]


def test_a_name_with_slashes_has_an_address_that_leads_back_to_it() -> None:
    assert reverse("web:model", args=[MODEL]) == ADDRESS
    assert reverse("web:edit_model", args=["a/edit"]) == "/models/a~edit/edit/"


def test_a_model_is_made_changed_and_deleted(admin: Client) -> None:
    assert applied(admin, "/models-new/", {**FORM, "name": MODEL}) == ADDRESS
    row = Model.objects.get()
    assert (row.max_context_tokens, row.output_token_cost_micros, row.adapter) == (131_072, 8, "")
    assert row.cold_start_budget_ms == {"total": 90_000}
    assert applied(admin, f"{ADDRESS}edit/", {**FORM, "max_tokens": "8192"}) == ADDRESS
    assert Model.objects.get().max_tokens == 8192
    assert "8,192" in page(admin, ADDRESS)
    assert applied(admin, f"{ADDRESS}delete/", {}) == "/models/"
    assert not Model.objects.exists()


def test_what_is_refused_stands_at_its_field(admin: Client) -> None:
    answer = admin.post("/models-new/", {**FORM, "name": MODEL, "default_max_tokens": "9000", "step": "review"})
    assert answer.status_code == 422
    assert "must be at most max_tokens (4096)" in str(answer.context["form"].errors["default_max_tokens"])
    assert 'value="9000"' in answer.content.decode()
    folder = admin.post("/models-new/", {**FORM, "name": MODEL, "files_folder": "models", "step": "review"})
    assert "give an absolute path" in str(folder.context["form"].errors["files_folder"])


def test_an_alias_is_made_moved_and_deleted(admin: Client) -> None:
    for name in (MODEL, "other"):
        write(partial(MODELS.create, name=name, fields={"max_context_tokens": 8192}))
    assert f'value="{MODEL}" selected' in page(admin, f"/aliases-new/?model={MODEL}")
    applied(admin, "/aliases-new/", {"name": "llama/latest", "model": MODEL})
    assert "llama/latest" in page(admin, ADDRESS)
    assert "llama/latest" in page(admin, "/models/")
    applied(admin, "/aliases/llama~latest/edit/", {"model": "other"})
    assert Alias.objects.get().model.name == "other"
    applied(admin, "/aliases/llama~latest/delete/", {})
    assert not Alias.objects.exists()


def test_the_page_of_a_version_shows_its_family(viewer: Client) -> None:
    passive_version("chat")
    text = page(viewer, "/models/chat-v1/")
    assert "version v1 of chat" in text
    assert 'href="/models/chat-v2/"' in text
    assert 'href="/pools/chat-v1/"' in text


def test_a_model_that_is_served_is_not_deleted_and_says_by_what(admin: Client) -> None:
    add_engine("llama-a", None)
    answer = admin.get(f"{ADDRESS}delete/")
    assert answer.status_code == 409
    assert "&#x27;chat&#x27;" in answer.content.decode()


def test_what_nothing_serves_says_what_to_do(viewer: Client, operator: Client) -> None:
    write(lambda unit: MODELS.create(unit, MODEL, {"max_context_tokens": 8192}))
    assert "No pool serves it." in page(viewer, ADDRESS)
    assert f"/pools-new/?model={MODEL.replace('/', '%2F')}" in page(operator, ADDRESS)
    assert f'value="{MODEL}" selected' in page(operator, f"/pools-new/?model={MODEL}")
    assert "/models-new/" not in page(operator, "/models/")


def test_engines_are_counted_as_the_list_of_pools_counts_them(viewer: Client) -> None:
    rack = node("rack-1", engines=["a", "b", "c"])
    add_engine("d", rack, state="down")
    Engine.objects.filter(name__in=["a", "b"]).update(cordoned=True)
    assert "1 of 4 up · 2 kept out" in page(viewer, "/models/")
    pools = " ".join(re.sub("<[^>]*>", " ", page(viewer, "/pools/")).split())
    assert "1 of 4 up" in pools
    assert "2 kept out" in pools


def test_the_list_asks_no_more_where_there_are_many(viewer: Client) -> None:
    def asked() -> int:
        with CaptureQueriesContext(connection) as queries:
            page(viewer, "/models/")
        return len(queries)

    def make(unit: UnitOfWork) -> None:
        for number in range(40):
            MODELS.create(unit, f"m-{number}", {"max_context_tokens": 8192})
            ALIASES.create(unit, f"a-{number}", {"model": f"m-{number}"})
            POOLS.create(unit, f"p-{number}", {"model": f"m-{number}"})

    add_engine("e-1", None)
    before = asked()
    write(make)
    assert asked() <= before <= 12
