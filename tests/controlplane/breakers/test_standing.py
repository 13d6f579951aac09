"""Which override holds, which comes next, and what gateways told of their breakers."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from django.utils import timezone

from controlplane.breakers.models import Override
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.store.writer import Owner
from tests.controlplane.alerts.conftest import target
from tests.controlplane.telemetry.filling import store
from wire.write_body import Series


@pytest.fixture(autouse=True)
def own_store(settings, tmp_path):
    settings.DATA_DIR = tmp_path


@pytest.fixture(autouse=True)
def engines(admin):
    """One pool with an engine that serves and one that is cordoned."""
    admin.post("/models", {"name": "m", "max_context_tokens": 8192})
    admin.post("/pools", {"name": "short", "model": "m", "breaker": {"error_permille": 111}})
    for number in (1, 2):
        engine = {"name": f"e{number}", "pool": "short", "url": f"http://127.0.0.1:{number}", "served_model": "m"}
        assert admin.post("/engines", engine).status_code == 201
    assert admin.post("/engines/e2/cordon").status_code == 200


@pytest.fixture
def force(operator):
    def force(state: str, seconds: int, kind: str = "pool", subject: str = "short") -> str:
        body = {"subject_kind": kind, "subject": subject, "state": state, "expires_in_seconds": seconds}
        answer = operator.post("/overrides", body)
        assert answer.status_code == 201, answer.content
        return str(answer.json()["item"]["name"])

    return force


def tell(gateway: str, engine: str, state: str, ago_seconds: int = 1) -> None:
    """What a gateway pushed of one engine."""
    at_ms = int((time.time() - ago_seconds) * 1000)
    labels = {"__name__": "headworks_gateway_breaker_state", "pool": "short", "engine": engine, "gateway": gateway}
    series = [
        Series({**labels, "state": possible}, [(at_ms, float(possible == state))])
        for possible in ("closed", "open", "half_open")
    ]
    store(store_path(), series, Owner("gateway", gateway))


def tell_of_pool(gateway: str, state: str) -> None:
    """What a gateway pushed of the pool's own breaker."""
    labels = {"__name__": "headworks_gateway_pool_breaker_state", "pool": "short", "gateway": gateway, "state": state}
    store(store_path(), [Series(labels, [(int(time.time() * 1000) - 1_000, 1.0)])], Owner("gateway", gateway))


def standing(viewer):
    items = viewer.get("/overrides").json()["items"]
    return {item["name"]: (item["standing"], item["shadowed_by"]) for item in items}


def test_a_stricter_one_shadows_and_an_expired_one_holds_no_more(force, viewer):
    closed, short_open, long_open = force("closed", 900), force("open", 60), force("open", 300)
    assert standing(viewer) == {
        closed: ("shadowed", long_open),
        short_open: ("shadowed", long_open),
        long_open: ("holds", None),
    }
    Override.objects.filter(name=long_open).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert standing(viewer) == {
        closed: ("shadowed", short_open),
        short_open: ("holds", None),
        long_open: ("expired", None),
    }
    one = viewer.get(f"/overrides/{closed}").json()
    assert (one["standing"], one["shadowed_by"]) == ("shadowed", short_open)


def test_what_holds_for_a_pool_shadows_what_is_laxer_on_its_engine(force, viewer):
    on_engine, on_pool = force("closed", 900, "engine", "e1"), force("open", 60)
    assert standing(viewer) == {on_engine: ("shadowed", on_pool), on_pool: ("holds", None)}


def test_a_stricter_one_on_one_engine_leaves_the_pools_to_the_others(force, viewer):
    on_engine, on_pool = force("open", 60, "engine", "e1"), force("closed", 900)
    assert standing(viewer) == {on_engine: ("holds", None), on_pool: ("holds", None)}
    (breaker,) = viewer.get("/breakers").json()["items"]
    assert [each["name"] for each in breaker["overrides"]] == [on_pool]
    by_engine = {each["engine"]: [turn["name"] for turn in each["overrides"]] for each in breaker["engines"]}
    assert by_engine == {"e1": [on_engine, on_pool], "e2": [on_pool]}


def test_what_comes_next_begins_when_what_holds_expires(force, viewer):
    closed, opened = force("closed", 900), force("open", 60)
    (breaker,) = viewer.get("/breakers").json()["items"]
    first, second = breaker["overrides"]
    assert ((first["name"], first["state"]), (second["name"], second["state"])) == (
        (opened, "open"),
        (closed, "closed"),
    )
    assert first["expires_at"] == second["from"]
    assert (first["reason"], breaker["thresholds"]["error_permille"]) == ("because of a test", 111)


def test_gateways_tell_their_states_and_what_is_old_or_untold_is_unknown(viewer):
    for name in ("gw-1", "gw-2", "gw-3"):
        target("gateway", name)
    tell("gw-1", "e1", "open")
    tell("gw-2", "e1", "half_open", ago_seconds=90)
    tell("gw-2", "e2", "closed")
    tell_of_pool("gw-3", "half_open")
    answer = viewer.get("/breakers").json()
    assert answer["missing"] is None
    assert answer["items"][0]["gateways"] == {"gw-1": None, "gw-2": None, "gw-3": "half_open"}
    e1, e2 = answer["items"][0]["engines"]
    assert e1["gateways"] == {"gw-1": "open", "gw-2": None, "gw-3": None}
    assert e2["gateways"] == {"gw-1": None, "gw-2": "closed", "gw-3": None}
    assert (e1["cordoned"], e2["cordoned"]) == (False, True)


def test_metrics_that_do_not_answer_leave_states_unknown_and_say_why(viewer, settings):
    target("gateway", "gw-1")
    store_path().write_bytes(b"no database at all" * 100)
    answer = viewer.get("/breakers").json()
    assert answer["missing"]
    assert answer["items"][0]["engines"][0]["gateways"] == {"gw-1": None}


def test_breakers_come_in_pages_of_pools(admin, viewer):
    admin.post("/pools", {"name": "long", "model": "m"})
    first = viewer.get("/breakers?limit=1").json()
    assert ([item["pool"] for item in first["items"]], first["next"]) == (["long"], "long")
    assert [item["pool"] for item in viewer.get("/breakers?limit=1&after=long").json()["items"]] == ["short"]
