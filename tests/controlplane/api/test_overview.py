"""`GET /api/v1/overview`: what the page shows, for scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.store.writer import Owner
from tests.controlplane.conftest import Rest
from tests.controlplane.telemetry.filling import store
from tests.web.hardware import fault, node
from tests.web.measured_pools import engine_series, gateway_series


@pytest.fixture(autouse=True)
def own_store(settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path


def test_an_empty_fleet_has_its_first_steps(viewer: Rest) -> None:
    seen = viewer.get("/overview").json()
    assert (seen["state"], seen["pools"]) == ("none", [])
    assert [step["done"] for step in seen["first_steps"]] == [False] * 8


def test_every_pool_is_there_with_its_sentence_and_numbers(viewer: Rest) -> None:
    node("rack-1", engines=["llama-a"])
    fault("rack-1")
    engine = engine_series("llama-a", "chat", "rack-1", kv_use=0.69)
    store(store_path(), [*gateway_series("chat", per_second=4.0, met=0.8), *engine], Owner("gateway", "edge-1"))
    seen = viewer.get("/overview").json()
    assert seen["state"] == "bad"
    assert seen["sentence"] == "promises missed: chat; 1 critical incident"
    (pool,) = seen["pools"]
    assert (pool["name"], pool["state"], pool["stale"]) == ("chat", "missed", False)
    assert pool["sentence"] == "chat: 31 % of KV left, queue 0.4 s, engine time 1.2 s"
    assert [reason["name"] for reason in pool["reasons"]] == ["goodput"]
    assert pool["goodput_ratio"] == pytest.approx(0.8)
    assert pool["kv_left_tokens"] == pytest.approx(130_200)
    assert seen["incidents"]["firing"] == {"critical": 1}
    assert seen["incidents"]["worst"][0]["title"] == "rack-1: XID 79 on GPU 3"
    assert seen["changes"]


def test_what_was_not_measured_is_null(viewer: Rest) -> None:
    node("rack-1", engines=["llama-a"])
    (pool,) = viewer.get("/overview").json()["pools"]
    names = ("goodput_ratio", "requests_per_second", "queue_seconds", "engine_seconds", "kv_left_ratio", "age_seconds")
    assert {name: pool[name] for name in names} == dict.fromkeys(names)


def test_it_is_closed_to_strangers(outsider: Rest) -> None:
    assert outsider.get("/overview").status_code == 401
