"""What of a large fleet is shown: by health, pool and text, page by page."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client, RequestFactory
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import DjangoAssertNumQueries

from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.store.writer import Owner
from controlplane.web.listed import ROWS_PER_PAGE
from controlplane.web.shown.fleet_search import Wanted
from tests.controlplane.telemetry.filling import store
from tests.web.hardware import add_engine, fault, gpu_uuid, node
from wire.write_body import Series

pytestmark = pytest.mark.both_databases
FLEET = "/fleet/"


@pytest.fixture(autouse=True)
def own_store(settings: Any, tmp_path: Path) -> Path:
    settings.DATA_DIR = tmp_path
    return store_path()


def shown(client: Client, query: str) -> list[str]:
    page = client.get(f"{FLEET}{query}").content.decode()
    return [part.partition('"')[0] for part in page.split('id="node-')[1:]]


def test_nodes_are_found_by_health_pool_and_text(viewer: Client) -> None:
    node("rack-1", engines=["llama-a"], lost=[0])
    node("rack-2", driver_version="580.2", cuda_version="12.8")
    node("rack-3", reported_at=timezone.now() - timedelta(hours=1))
    assert shown(viewer, "?health=degraded") == ["rack-1"]
    assert shown(viewer, "?pool=chat") == ["rack-1"]
    assert shown(viewer, "?q=580.2") == shown(viewer, "?q=12.8") == ["rack-2"]
    assert "CUDA 12.8" in viewer.get(FLEET).content.decode()
    assert shown(viewer, "?q=LLAMA-A") == ["rack-1"]
    assert shown(viewer, "?q=rack&health=lost") == ["rack-3"]
    assert shown(viewer, "?q=h100") == ["rack-3", "rack-1", "rack-2"]


def test_what_nothing_is_like_says_so_and_leads_back(viewer: Client) -> None:
    node("rack-1", engines=["llama-a"])
    page = viewer.get(f"{FLEET}?q=<script>").content.decode()
    assert "No node is like that." in page
    assert "No engine is like that." in page
    assert "&lt;script&gt;" in page
    assert "<script>" not in page.partition('id="nodes"')[2]


def test_engines_are_found_alike(viewer: Client) -> None:
    node("rack-1", engines=["llama-a"])
    add_engine("direct", None)
    engines = viewer.get(f"{FLEET}?q=direct").content.decode().partition('id="engines"')[2]
    assert "direct</span>" in engines
    assert "llama-a" not in engines


def test_a_fleet_of_many_nodes_comes_in_pages_and_keeps_what_was_looked_for(viewer: Client) -> None:
    for number in range(ROWS_PER_PAGE + 3):
        node(f"rack-{number:03}")
    assert len(shown(viewer, "")) == ROWS_PER_PAGE
    assert shown(viewer, "?page=2&q=rack") == [f"rack-{ROWS_PER_PAGE + at:03}" for at in range(3)]
    # One behind the last is the last.
    assert shown(viewer, "?page=99") == shown(viewer, "?page=2")
    page = viewer.get(f"{FLEET}?q=rack").content.decode()
    assert f"1 to {ROWS_PER_PAGE} of {ROWS_PER_PAGE + 3}" in page
    assert "?q=rack&amp;page=2#nodes" in page
    assert "/fleet-panel/?q=rack" in page


def test_a_large_fleet_costs_few_queries(viewer: Client, django_assert_max_num_queries: DjangoAssertNumQueries) -> None:
    for number in range(30):
        node(f"rack-{number:03}", engines=[f"engine-{number}"])
        fault(f"rack-{number:03}")
    with django_assert_max_num_queries(10):
        viewer.get(FLEET)


@given(st.dictionaries(st.sampled_from(["health", "pool", "q", "page", "engines_page", "other"]), st.text()))
def test_any_address_asks_for_something_and_its_query_for_the_same(parameters: dict[str, str]) -> None:
    wanted = Wanted.of(RequestFactory().get(FLEET, parameters))
    for query in (wanted.query, wanted.nodes.query, wanted.engines.query):
        assert Wanted.of(RequestFactory().get(f"{FLEET}{query}")) == wanted


def test_each_list_goes_on_while_the_other_stays_where_it_is(viewer: Client) -> None:
    for number in range(ROWS_PER_PAGE + 1):
        node(f"rack-{number:03}", engines=[f"engine-{number:03}"])
    first = viewer.get(f"{FLEET}?q=0&pool=chat&engines_page=2").content.decode()
    assert "?pool=chat&amp;engines_page=2&amp;q=0&amp;page=2#nodes" in first
    second = viewer.get(f"{FLEET}?pool=chat&page=2&engines_page=2").content.decode()
    assert "?pool=chat&amp;page=2#engines" in second
    assert "rack-050" in second.partition('id="engines"')[0].partition('id="nodes"')[2]
    assert "engine-050" in second.partition('id="engines"')[2]


def test_what_was_measured_before_an_agent_fell_silent_is_shown_with_its_age(viewer: Client, own_store: Path) -> None:
    heard = timezone.now() - timedelta(minutes=12)
    node("rack-1", engines=["llama-a"], reported_at=heard)
    at_ms = int(heard.timestamp() * 1000) - 3000
    gpu = {"__name__": "DCGM_FI_DEV_GPU_UTIL", "node": "rack-1", "UUID": gpu_uuid("rack-1", 0)}
    load = {"__name__": "headworks_engine_requests_running", "node": "rack-1", "engine": "llama-a"}
    store(own_store, [Series(gpu, [(at_ms, 87.0)]), Series(load, [(at_ms, 14.0)])], Owner("node", "rack-1"))
    for address in (FLEET, "/fleet/rack-1/"):
        page = viewer.get(address).content.decode()
        assert "87" in page
        assert 'class="stale"' in page
        assert "12 min ago</time>" in page.partition("as of")[2][:200]
        # What ran then is no drain of now.
        assert "draining" not in page


def test_an_engine_that_gets_no_new_requests_shows_how_far_it_has_drained(viewer: Client, own_store: Path) -> None:
    node("rack-1", engines=["llama-a", "llama-b"], cordoned=True)
    now_ms = int(timezone.now().timestamp() * 1000)
    series = [
        Series({"__name__": f"headworks_engine_requests_{kind}", "node": "rack-1", "engine": engine}, [(now_ms, count)])
        for engine, running in (("llama-a", 3.0), ("llama-b", 0.0))
        for kind, count in (("running", running), ("waiting", 0.0))
    ]
    store(own_store, series, Owner("node", "rack-1"))
    page = viewer.get("/fleet/rack-1/").content.decode()
    assert "3 requests are still in engines that get no new ones" in page
    engines = page.partition('id="engines"')[2]
    assert "draining" in engines.partition("llama-b")[0]
    assert "drained" in engines.partition("llama-b")[2]
