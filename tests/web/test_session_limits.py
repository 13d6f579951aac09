"""The page of session limits: who has which, how near sessions come to them, and the forms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from controlplane.core.changes import UnitOfWork
from controlplane.diagnosis.models import Finding
from controlplane.telemetry.receiver import store_path
from controlplane.tenants import services as tenants
from controlplane.tenants.models import SessionLimits
from controlplane.tenants.services import SESSION_LIMITS
from controlplane.web.measured import Numbers
from controlplane.web.shown.agent_sessions import tenant_lines
from tests.web.asking import applied, page, part
from tests.web.conftest import write
from tests.web.diagnosed import found
from tests.web.traffic import measured

pytestmark = pytest.mark.django_db
LIMITS = "/session-limits/"
FORM = {
    "max_iterations": "50", "max_tokens": "400000", "max_depth": "0", "max_repeated_calls": "3",
    "max_cost_micros": "", "idle_ms": "1800",
}  # fmt: skip


@pytest.fixture(autouse=True)
def own_store(settings: Any, tmp_path: Path) -> Path:
    settings.DATA_DIR = tmp_path
    return store_path()


@pytest.fixture
def agents() -> None:
    def make(unit: UnitOfWork) -> None:
        SESSION_LIMITS.create(unit, "agents", {"max_iterations": 50, "max_tokens": 400_000})
        tenants.create(unit, "acme", {"session_limits": "agents"})

    write(make)


def test_a_tenants_largest_session_stands_beside_its_limits(agents: None, own_store: Path, viewer: Client) -> None:
    measured(
        own_store,
        {
            ("headworks_gateway_session_calls_highest", "tenant=acme"): 45.0,
            ("headworks_gateway_session_tokens_highest", "tenant=acme"): 20_000.0,
        },
        {
            ("headworks_gateway_sessions_near_limit_total", "tenant=acme", "reason=session_iterations"): 4.0,
            ("headworks_gateway_sessions_closed_total", "tenant=acme", "reason=session_iterations"): 2.0,
            ("headworks_gateway_requests_total", "tenant=acme", "reason=session_iterations", "outcome=refused"): 31.0,
            ("headworks_gateway_requests_total", "tenant=acme", "reason=tpm_limit", "outcome=refused"): 70.0,
        },
    )
    sessions = part(page(viewer, LIMITS), "sessions")
    assert "45 <" in sessions
    assert "of 50" in sessions
    assert "of 400,000" in sessions
    # The calls are near their limit, the tokens are not.
    assert sessions.count("beyond what it should be") == 1
    assert "31 <code" in sessions
    assert "70" not in sessions


def test_limits_say_what_they_hold_and_who_has_them(agents: None, viewer: Client) -> None:
    limits = part(page(viewer, LIMITS), "limits")
    assert "400,000" in limits
    assert "no limit" in limits
    assert "60 min" in limits
    assert 'href="/tenants/acme/"' in limits
    assert "/edit/" not in limits


def test_an_agent_that_runs_away_stands_first(operator: Client) -> None:
    seen = found()
    assert "An agent runs away" not in page(operator, LIMITS)
    Finding.objects.filter(pk=seen.pk).update(
        detector="runaway_agent", subject="tenant/acme", summary={"en": "acme has a session of 400 calls"}
    )
    runaways = part(page(operator, LIMITS), "runaways")
    assert f'href="/diagnosis/findings/{seen.pk}/"' in runaways
    assert "acme has a session of 400 calls" in runaways


def test_limits_are_made_changed_and_deleted(operator: Client) -> None:
    applied(operator, "/session-limits-new/", {**FORM, "name": "agents"})
    row = SessionLimits.objects.get()
    assert (row.max_iterations, row.max_depth, row.max_cost_micros, row.idle_ms) == (50, 0, None, 1_800_000)
    applied(operator, "/session-limits/agents/edit/", {**FORM, "max_tokens": ""})
    assert SessionLimits.objects.get().max_tokens is None
    applied(operator, "/session-limits/agents/delete/", {})
    assert not SessionLimits.objects.exists()


def test_a_change_says_whose_sessions_it_is_about(agents: None, operator: Client) -> None:
    answer = operator.post("/session-limits/agents/edit/", {**FORM, "max_iterations": "10", "step": "review"})
    assert "every session of acme" in answer.content.decode()


def test_limits_that_a_tenant_has_are_not_deleted(agents: None, operator: Client) -> None:
    answer = operator.get("/session-limits/agents/delete/")
    assert answer.status_code == 409
    assert "acme" in answer.content.decode()


def test_what_cannot_be_is_refused_at_its_field(operator: Client) -> None:
    answer = operator.post("/session-limits-new/", {**FORM, "name": "x", "max_iterations": "0", "step": "review"})
    assert answer.status_code == 422
    assert answer.context["form"].errors["max_iterations"]


def test_the_list_asks_no_more_where_there_are_many(viewer: Client) -> None:
    def make(unit: UnitOfWork) -> None:
        for number in range(30):
            SESSION_LIMITS.create(unit, f"s-{number}", {})
            tenants.create(unit, f"t-{number}", {"session_limits": f"s-{number}"})

    write(make)
    with CaptureQueriesContext(connection) as queries:
        page(viewer, LIMITS)
    assert len(queries) <= 10, [each["sql"][:120] for each in queries]


def test_without_anything_it_says_what_limits_are_for(viewer: Client) -> None:
    text = page(viewer, LIMITS)
    assert "No session limits yet." in text
    assert "No session was used." in text


def test_those_whose_sessions_were_stopped_come_first() -> None:
    numbers = Numbers(
        {
            "begun": {("calm",): 500.0, ("stopped",): 1.0, ("near",): 1.0, ("idle",): 0.2},
            "near": {("near", "session_tokens"): 3.0},
            "closed": {("stopped", "session_cost"): 1.0},
            "calls": {("calm",): 90.0},
        }
    )
    assert [line.tenant for line in tenant_lines(numbers)] == ["stopped", "near", "calm"]
