"""Engines and nodes in the browser: added, changed, moved, deleted, each with what it does to whom."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.test import Client

from controlplane.core.models import AuditEntry
from controlplane.fleet.models import Engine, Node
from controlplane.fleet.services import ENGINES, NODES, POOLS
from controlplane.web.shown import capacity
from tests.web.conftest import digest_of, new_target, write
from tests.web.hardware import MODEL, add_engine, node

NEW = "/engines-new/"
ROW = {
    "name": "llama-b",
    "pool": "chat",
    "node": "rack-1",
    "url": "http://10.2.0.8:8000",
    "kind": "vllm",
    "served_model": MODEL,
    "kv_capacity_tokens": "",
}


@pytest.fixture(autouse=True)
def _who_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the metrics store knows of the last hour."""
    monkeypatch.setattr(
        capacity, "tenants_of", lambda pools: f"acme asked for {', '.join(sorted(pools))}." if pools else ""
    )


def apply(client: Client, path: str, row: dict[str, str], reason: str = "more room") -> str:
    """Review and carry out; where it led."""
    page = client.post(path, {**row, "step": "review"}).content.decode()
    answer = client.post(path, {**row, "step": "apply", "digest": digest_of(page), "reason": reason})
    assert answer.status_code == 302, answer.content.decode()
    return str(answer["Location"])


def test_an_engine_is_added_with_a_review_and_its_convergence_is_followed(operator: Client) -> None:
    node("rack-1", engines=["llama-a"])
    page = operator.get(f"{NEW}?node=rack-1").content.decode()
    assert '<option value="rack-1" selected>' in page
    review = operator.post(NEW, {**ROW, "step": "review"}).content.decode()
    assert "/api/v1/engines?reason=WHY" in review
    assert "http://10.2.0.8:8000" in review
    place = apply(operator, NEW, ROW)
    entry = AuditEntry.objects.filter(noun="engine", key="llama-b").get()
    assert place == f"/fleet/?change={entry.change_id}"
    row = ENGINES.get("llama-b")
    assert (row.node and row.node.name, row.pool.name, row.url) == ("rack-1", "chat", "http://10.2.0.8:8000")
    assert f"change={entry.change_id}" in operator.get(place).content.decode()


def test_a_form_refuses_at_its_field_and_keeps_what_was_typed(operator: Client) -> None:
    node("rack-1", engines=["llama-a"])
    answer = operator.post(NEW, {**ROW, "url": "ftp://<script>", "step": "review"})
    page = answer.content.decode()
    assert answer.status_code == 422
    assert 'value="ftp://&lt;script&gt;"' in page
    assert "errorlist" in page.partition('id="id_url"')[2].partition('id="id_kind"')[0]
    taken = operator.post(NEW, {**ROW, "name": "llama-a", "step": "review"})
    assert taken.status_code == 422
    assert Engine.objects.count() == 1


def test_without_a_pool_the_page_says_what_comes_first(operator: Client) -> None:
    page = operator.get(NEW).content.decode()
    assert "There is no pool yet." in page
    assert 'href="/pools-new/"' in page


def test_an_engine_that_leaves_its_pool_says_what_is_left_of_it(operator: Client) -> None:
    node("rack-1", engines=["llama-a", "llama-b"])
    write(lambda unit: POOLS.create(unit, "batch", {"model": MODEL}))
    row = {**ROW, "url": "http://10.2.0.7:8000"}
    del row["name"]
    moved = operator.post("/engines/llama-a/edit/", {**row, "pool": "batch", "step": "review"}).content.decode()
    assert "Pool chat keeps 1 of 2 engines that take requests." in moved
    assert "acme asked for chat." in moved
    # Of another address nobody loses anything.
    elsewhere = operator.post("/engines/llama-a/edit/", {**row, "url": "http://h:1", "step": "review"}).content.decode()
    assert "Pool chat" not in elsewhere
    assert "New requests go to the new address" in elsewhere
    apply(operator, "/engines/llama-a/edit/", {**row, "pool": "batch"})
    assert ENGINES.get("llama-a").pool.name == "batch"


def test_the_last_engine_of_a_pool_is_deleted_with_a_warning(operator: Client) -> None:
    node("rack-1", engines=["llama-a"])
    path = "/engines/llama-a/delete/"
    page = operator.get(path).content.decode()
    assert "Pool chat has no other engine that takes requests" in page
    assert "danger-button" in page
    operator.post(path, {"step": "apply", "digest": digest_of(page), "reason": "scrapped"})
    assert not Engine.objects.exists()


def test_an_engine_that_takes_nothing_or_is_down_is_deleted_without_one(operator: Client) -> None:
    node("rack-1")
    add_engine("llama-a", Node.objects.get())
    add_engine("llama-b", Node.objects.get(), state="down")
    write(lambda unit: ENGINES.cordon(unit, "llama-a"))
    for name in ("llama-a", "llama-b"):
        assert "Pool chat" not in operator.get(f"/engines/{name}/delete/").content.decode()


def set_key(client: Client, api_key: str, reason: str) -> Any:
    return client.post("/engines/llama-a/key/", {"api_key": api_key, "reason": reason, "form_id": str(uuid.uuid4())})


def test_a_key_is_set_and_shown_by_nothing(operator: Client) -> None:
    node("rack-1", engines=["llama-a"])
    answer = set_key(operator, "sk-very-secret", "it asks for one")
    assert answer.status_code == 302
    assert ENGINES.get("llama-a").encrypted_api_key
    page = operator.get("/engines/llama-a/key/").content.decode()
    assert "It has one" in page
    assert "sk-very-secret" not in page
    refused = set_key(operator, "two words", "x")
    assert refused.status_code == 422
    assert "two words" not in refused.content.decode()
    set_key(operator, "", "it asks for none")
    assert not ENGINES.get("llama-a").encrypted_api_key


def test_an_engine_that_was_found_on_a_node_is_added_by_a_form_that_knows_it(operator: Client) -> None:
    found = {"url": "http://127.0.0.1:8009", "kind": "sglang", "version": None, "models": ["Qwen/Qwen3-8B"]}
    node("rack-1", engines=["llama-a"], found_engines=[found])
    page = operator.get("/fleet/rack-1/").content.decode()
    link = page.partition('href="/engines-new/?url=')[2].partition('"')[0].replace("&amp;", "&")
    form = operator.get(f"{NEW}?url={link}").content.decode()
    assert 'value="http://127.0.0.1:8009"' in form
    assert 'value="Qwen/Qwen3-8B"' in form
    assert '<option value="sglang" selected>' in form
    assert "selected" in form.partition('value="rack-1"')[2][:12]


def test_a_node_is_made_and_deleted_and_not_while_something_uses_it(operator: Client) -> None:
    assert apply(operator, "/fleet-new/", {"name": "rack-9"}).startswith("/fleet/rack-9/?change=")
    add_engine("llama-a", NODES.get("rack-9"))
    refused = operator.get("/fleet/rack-9/delete/")
    assert refused.status_code == 409
    assert "llama-a" in refused.content.decode()
    write(lambda unit: ENGINES.delete(unit, "llama-a"))
    page = operator.get("/fleet/rack-9/delete/").content.decode()
    operator.post("/fleet/rack-9/delete/", {"step": "apply", "digest": digest_of(page), "reason": "returned"})
    assert NODES.find("rack-9") is None


def test_a_cordon_says_whom_it_takes_what(operator: Client) -> None:
    node("rack-1", engines=["llama-a"])
    node("rack-2", engines=["llama-b"])
    for path in ("/fleet/rack-1/cordon/", "/engines/llama-a/cordon/"):
        page = operator.get(path).content.decode()
        assert "Pool chat keeps 1 of 2 engines that take requests. acme asked for chat." in page


def test_an_act_that_ends_what_runs_says_it_too_and_another_does_not(operator: Client) -> None:
    node("rack-1", engines=["llama-a"], allowed_acts={"llama-a": ["drain", "wake"]})
    new_target("node", "rack-1")

    def review(action: str) -> str:
        form = {"limit_seconds": "900", "expires_in_seconds": "10", "step": "review"}
        return operator.post(f"/acts-new/{action}/?engine=llama-a", form).content.decode()

    assert "Pool chat has no other engine that takes requests" in review("drain")
    assert "Pool chat" not in review("wake")
