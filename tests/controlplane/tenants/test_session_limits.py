from __future__ import annotations

from controlplane.core.changes import SYSTEM, sections, unit_of_work
from controlplane.tenants.models import SessionLimits
from controlplane.tenants.services.session_limits import SessionLimitsFields
from tests.controlplane.core.configuration import compiled
from wire import snapshot
from wire.problems import type_problems

LIMITS = {
    "max_iterations": 50, "max_tokens": 200_000, "max_depth": 0, "max_repeated_calls": 3, "max_cost_micros": 900_000,
}  # fmt: skip


def test_session_limits_are_made_changed_and_told(operator):
    made = operator.post("/session-limits", {"name": "agents", **LIMITS})
    assert made.status_code == 201
    assert made.json()["item"] == {"name": "agents", **LIMITS, "idle_ms": 3_600_000}
    operator.patch("/session-limits/agents", {"max_tokens": None, "idle_ms": 60_000})
    content = compiled("session_limits", "agents")
    assert type_problems(content, snapshot.SessionLimits) == []
    assert content == {**{name: value for name, value in LIMITS.items() if name != "max_tokens"}, "idle_ms": 60_000}


def test_limits_out_of_range_are_refused_by_field(operator):
    answer = operator.post("/session-limits", {"name": "x", "max_iterations": 0, "max_depth": -1, "idle_ms": 2**50})
    assert {problem["path"] for problem in answer.json()["problems"]} == {"/max_iterations", "/max_depth", "/idle_ms"}


def test_limits_in_use_are_not_deleted_and_their_tenants_are_named(operator):
    operator.post("/session-limits", {"name": "agents"})
    operator.post("/tenants", {"name": "acme", "session_limits": "agents"})
    answer = operator.delete("/session-limits/agents")
    assert (answer.status_code, answer.json()["code"]) == (409, "in_use")
    assert "tenant 'acme'" in answer.json()["detail"]
    operator.patch("/tenants/acme", {"session_limits": None})
    assert operator.delete("/session-limits/agents").status_code == 200
    assert not SessionLimits.objects.exists()


def test_what_they_compile_into_restores_them(operator):
    operator.post("/session-limits", {"name": "agents", **LIMITS})
    content = compiled("session_limits", "agents")
    operator.delete("/session-limits/agents")
    restore = sections["session_limits"].restore
    assert restore is not None
    with unit_of_work(SYSTEM, "a test") as unit:
        restore(unit, "agents", content)
    assert compiled("session_limits", "agents") == content


def test_defaults_of_the_row_are_those_of_the_wire_format():
    assert SessionLimitsFields().idle_ms == snapshot.SessionLimits().idle_ms
