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


def test_defaults_of_the_row_are_those_of_the_wire_format():
    assert PriorityClassFields(rank=1).ageing_ms == snapshot.PriorityClass(rank=1).ageing_ms
