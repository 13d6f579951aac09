from __future__ import annotations

import pytest

from controlplane.configs.models import Fragment
from controlplane.core.models import AuditEntry
from controlplane.core.sealed import unseal
from controlplane.fleet.models import Engine
from tests.controlplane.core.configuration import compiled
from tests.controlplane.fleet.conftest import ENGINE, MODEL, problem_paths


def test_an_engine_compiles_without_what_is_not_set(fleet):
    assert compiled("engines", "e1") == {
        "url": ENGINE["url"],
        "kind": "vllm",
        "pool": "short",
        "served_model": MODEL,
        "node": "n1",
        "cordoned": False,
    }


@pytest.mark.parametrize(
    "url", ["10.0.0.1:8000", "ftp://h", "http://u:p@h:1", "http://h:1/v1", "http://h:0", "http://h?x=1", "", 8000]
)
def test_an_address_must_be_scheme_host_and_port(fleet, url):
    assert problem_paths(fleet.patch("/engines/e1", {"url": url})) == {"/url"}
    assert Engine.objects.get().url == ENGINE["url"]


def test_what_it_names_must_exist_and_every_missing_name_is_told(fleet):
    body = {**ENGINE, "name": "e2", "pool": "nobody", "node": "nowhere"}
    assert problem_paths(fleet.post("/engines", body)) == {"/pool", "/node"}
    assert Engine.objects.count() == 1


def test_an_api_key_is_encrypted_and_shown_nowhere(fleet):
    secret = "sk-very-secret-key"
    answer = fleet.patch("/engines/e1", {"api_key": secret})
    assert answer.json()["item"]["api_key_set_at"]
    row = Engine.objects.get()
    assert unseal(row.encrypted_api_key) == secret
    assert compiled("engines", "e1")["api_key_encrypted"] == row.encrypted_api_key
    shown = answer.content + fleet.get("/engines/e1").content + fleet.get("/audit").content
    stored = str(list(AuditEntry.objects.values_list("before", "after"))) + str(list(Fragment.objects.values()))
    assert secret not in shown.decode() + stored
    assert row.encrypted_api_key not in shown.decode()


def test_an_api_key_stays_until_it_is_replaced_or_removed(fleet):
    fleet.patch("/engines/e1", {"api_key": "first"})
    fleet.patch("/engines/e1", {"url": "http://10.0.0.2:8000"})
    assert unseal(Engine.objects.get().encrypted_api_key) == "first"
    removed = fleet.patch("/engines/e1", {"api_key": None}).json()
    assert removed["item"]["api_key_set_at"] is None
    assert Engine.objects.get().encrypted_api_key == ""
    assert AuditEntry.objects.filter(noun="engine", action="update").count() == 3


@pytest.mark.parametrize("key", ["", "with space", "line\nend", "x" * 501, "ключ"])
def test_an_api_key_that_is_no_header_value_is_refused_without_repeating_it(fleet, key):
    answer = fleet.patch("/engines/e1", {"api_key": key})
    assert problem_paths(answer) == {"/api_key"}
    assert not key or key not in answer.content.decode()


def test_an_engine_without_a_node_takes_its_capacity_by_hand(fleet):
    answer = fleet.patch("/engines/e1", {"node": None, "kv_capacity_tokens": 1000}).json()
    assert answer["patch"]["engines"]["e1"] == {"node": None, "kv_capacity_tokens": 1000}


def test_reported_facts_cannot_be_set(fleet):
    assert problem_paths(fleet.patch("/engines/e1", {"state": "up"})) == {"/state"}


def test_a_deleted_engine_is_gone(fleet):
    assert fleet.delete("/engines/e1").json()["patch"] == {"engines": {"e1": None}}
    assert fleet.get("/engines/e1").status_code == 404


def test_lists_take_one_query(fleet, django_assert_max_num_queries):
    fleet.post("/engines", {**ENGINE, "name": "e2"})
    with django_assert_max_num_queries(2):
        assert len(fleet.get("/engines").json()["items"]) == 2
