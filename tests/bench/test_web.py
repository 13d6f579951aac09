"""The fleet that the web benchmark draws: its pages show it, measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.support import web_fleet
from controlplane.fleet.models import Engine, Gpu
from controlplane.web.shown.overview import overview

NODES = 8


@pytest.fixture
def fleet(db: None, settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path
    web_fleet.fill_rows(NODES)
    web_fleet.fill_samples(NODES, minutes=7)


def test_every_pool_is_measured_and_all_that_serves_is_up(fleet: None) -> None:
    seen = overview()
    assert [line.name for line in seen.pools] == ["pool-0", "pool-1"]
    for line in seen.pools:
        reading = line.reading
        assert line.reasons == []
        assert None not in (reading.kv_left_tokens, reading.queue_seconds, reading.engine_seconds)
        assert reading.goodput_ratio == pytest.approx(2 / 2.02, abs=0.01)
        assert reading.kept_ratios.keys() == {"ttft", "tpot"}
    assert (Gpu.objects.count(), Engine.objects.count()) == (NODES * web_fleet.GPUS, NODES * web_fleet.ENGINES_A_NODE)
    assert seen.firing.incidents == 2


def test_each_viewer_has_a_log_in_of_their_own(db: None, client: Any) -> None:
    cookies = web_fleet.cookies()
    assert len(set(cookies)) == web_fleet.VIEWERS
    client.cookies["headworks_session"] = cookies[0]
    assert client.get("/overview-panel/").status_code == 200
