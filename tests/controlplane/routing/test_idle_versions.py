"""Versions that nobody asks for are retired once that is known for long enough, and never because nobody knew."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from controlplane.core.fields import epoch_ms
from controlplane.core.models import AuditEntry, Target
from controlplane.fleet.models import ModelVersion
from controlplane.fleet.services import take_report
from controlplane.routing import idle_versions
from controlplane.telemetry.decisions import sketches
from wire.messages import NodeReport
from wire.sketches import Sketch

BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
DAYS = 2


@pytest.fixture(autouse=True)
def _days(monkeypatch):
    monkeypatch.setenv("HEADWORKS_VERSION_IDLE_DAYS", str(DAYS))


@pytest.fixture
def two_versions(admin):
    for name in ("v1", "v2"):
        admin.post("/models", {"name": f"chat-{name}", "max_context_tokens": 8192})
        admin.post("/pools", {"name": name, "model": f"chat-{name}"})
        answer = admin.post("/model-versions", {"family": "chat", "version": name, "model": f"chat-{name}"})
        assert answer.status_code == 201, answer.content
    return admin


@pytest.fixture
def gateway(db):
    return Target.objects.create(
        kind="gateway", name="edge-1", version="1", protocol=1, token_hash="a" * 64, token_expires_at=BEGUN
    )


def heard(at):
    Target.objects.update(last_seen_at=at)


def asked(pool, at):
    told = Sketch(minute=epoch_ms(at) // 60_000 * 60_000, tenant="-", priority_class="-", pool=pool, arrivals=1)
    sketches.take("edge-1", [told], now_ms=epoch_ms(at))


def looks(hours, begin=0, *, silent=()):
    """Every hour; answers in which versions were retired."""
    retired = []
    for hour in range(begin, begin + hours):
        now = BEGUN + timedelta(hours=hour)
        if hour not in silent:
            heard(now)
        if idle_versions.look(now):
            retired.append(hour)
    return retired


def retired():
    return set(ModelVersion.objects.exclude(retired_at=None).values_list("version", flat=True))


def test_a_passive_version_is_retired_after_days_without_a_request_and_the_newest_is_not(two_versions, gateway):
    assert looks(24 * DAYS + 10) == [24 * DAYS]
    assert retired() == {"v1"}
    entry = AuditEntry.objects.get(noun="model version", action="update")
    assert (entry.actor_kind, entry.reason) == ("system", f"nobody asked for it for {DAYS} days")


def test_a_request_begins_the_days_anew(two_versions, gateway):
    looks(40)
    asked("v1", BEGUN + timedelta(hours=39, minutes=30))
    assert looks(24 * DAYS + 1, begin=40) == [40 + 24 * DAYS]
    assert ModelVersion.objects.get(version="v1").used_at == BEGUN + timedelta(hours=39, minutes=30)


def test_while_a_gateway_is_silent_nobody_knows_and_the_days_begin_anew(two_versions, gateway):
    assert looks(24 * DAYS + 10, silent={30}) == []
    assert looks(24 * DAYS, begin=24 * DAYS + 10) == [31 + 24 * DAYS]


def test_without_any_gateway_nobody_tells_of_requests(two_versions):
    assert looks(24 * DAYS + 10) == []


def test_hours_in_which_nobody_looked_count_for_nothing(two_versions, gateway):
    looks(10)
    assert looks(5, begin=24 * DAYS + 20) == []


def test_what_is_pinned_or_serves_others_stays_until_it_no_longer_is(two_versions, gateway):
    two_versions.post("/tenants", {"name": "acme", "pins": {"chat": "chat-v1"}})
    assert looks(24 * DAYS + 5) == []
    two_versions.patch("/tenants/acme", {"pins": {}})
    assert looks(2, begin=24 * DAYS + 5) == [24 * DAYS + 5]


def test_it_is_left_to_people_where_the_setting_says_so(two_versions, gateway, monkeypatch):
    monkeypatch.setenv("HEADWORKS_VERSION_IDLE_DAYS", "0")
    assert looks(24 * DAYS + 5) == []


def test_an_adapter_has_no_pool_of_its_own_to_be_idle_by(two_versions, gateway):
    two_versions.post("/models", {"name": "sql-v1", "max_context_tokens": 8192, "adapter": "sql"})
    two_versions.post("/models", {"name": "sql-v2", "max_context_tokens": 8192, "adapter": "sql2"})
    for version in ("v1", "v2"):
        two_versions.post("/model-versions", {"family": "sql", "version": version, "model": f"sql-{version}"})
    assert ModelVersion.objects.filter(family="sql").count() == 2
    looks(24 * DAYS + 1)
    assert set(ModelVersion.objects.exclude(retired_at=None).values_list("family", flat=True)) == {"chat"}


def test_an_act_that_could_not_be_asked_for_is_told_in_the_log(two_versions, gateway, caplog):
    two_versions.post("/nodes", {"name": "n"})
    two_versions.post("/engines", {"name": "e", "url": "http://e:8000", "pool": "v1", "served_model": "m", "node": "n"})
    take_report("n", NodeReport("1", allowed_acts={"e": ["drain"]}), BEGUN)
    looks(24 * DAYS + 1)
    assert "engine 'e' was not asked to drain" in caplog.text


def test_of_two_workers_that_look_at_once_one_counts(two_versions, gateway):
    looks(3)
    row = ModelVersion.objects.get(version="v1")
    looks(1, begin=3)
    assert idle_versions._idle(row, BEGUN + timedelta(hours=3), True) is None
