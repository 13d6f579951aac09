from __future__ import annotations

from controlplane.tenants.models import PriorityClass
from controlplane.tenants.services.priority_classes import PriorityClassFields
from tests.controlplane.core.configuration import compiled
from wire import snapshot


def test_a_class_needs_a_rank(operator):
    answer = operator.post("/priority-classes", {"name": "chat"})
    assert [(p["path"], p["rule"]) for p in answer.json()["problems"]] == [("/rank", "required")]


def test_a_class_compiles_into_its_wire_form(operator):
    operator.post("/priority-classes", {"name": "chat", "rank": 0, "queue_ttl_ms": 500})
    assert compiled("priority_classes", "chat") == {"rank": 0, "ageing_ms": 0, "queue_ttl_ms": 500}


def test_a_class_in_use_is_not_deleted_and_its_users_are_named(operator):
    for name in ("chat", "batch", "free"):
        operator.post("/priority-classes", {"name": name, "rank": 0})
    operator.post("/tenants", {"name": "acme", "priority_classes": ["chat"]})
    operator.post("/tenants", {"name": "globex", "default_priority_class": "batch"})
    for name, tenant in (("chat", "acme"), ("batch", "globex")):
        answer = operator.delete(f"/priority-classes/{name}")
        assert answer.status_code == 409
        assert answer.json()["code"] == "in_use"
        assert tenant in answer.json()["detail"]
    assert operator.delete("/priority-classes/free").status_code == 200
    assert set(PriorityClass.objects.values_list("name", flat=True)) == {"chat", "batch"}


def test_what_a_class_sets_of_shedding_and_slo_reaches_the_gateways(operator):
    slo = {"ttft_slo_ms": 300, "tpot_slo_ms": 40, "e2e_slo_ms": 9_000, "objective_permille": 990}
    operator.post("/priority-classes", {"name": "chat", "rank": 0, "shed_order": 2, **slo})
    assert compiled("priority_classes", "chat") == {"rank": 0, "ageing_ms": 0, "shed_order": 2, **slo}
    refused = operator.patch("/priority-classes/chat", {"objective_permille": 1001, "shed_order": -1})
    assert {problem["path"] for problem in refused.json()["problems"]} == {"/objective_permille", "/shed_order"}


def test_each_class_shows_after_how_long_it_goes_before_all_that_come_later(operator):
    for name, rank, ageing_ms in (("chat", 0, 0), ("batch", 5, 2_000), ("spare", 9, 0)):
        made = operator.post("/priority-classes", {"name": name, "rank": rank, "ageing_ms": ageing_ms})
        assert "waits_at_most_ms" not in made.json()["item"], "it is of the other classes as well"
    shown = {item["name"]: item["waits_at_most_ms"] for item in operator.get("/priority-classes").json()["items"]}
    assert shown == {"chat": 0, "batch": 10_000, "spare": None}
    assert operator.get("/priority-classes/batch").json()["waits_at_most_ms"] == 10_000


def test_defaults_of_the_row_are_those_of_the_wire_format():
    ours, theirs = PriorityClassFields(rank=1), snapshot.PriorityClass(rank=1)
    assert (ours.ageing_ms, ours.shed_order) == (theirs.ageing_ms, theirs.shed_order)
