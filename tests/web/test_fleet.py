"""The fleet's pages: what is wrong is said first and in words, and a cordon goes through the review."""

from __future__ import annotations

import re
import time
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.utils.html import escape

from controlplane.alerts.models import Incident, NodeEvent, PolicyCordon
from controlplane.breakers.models import Override
from controlplane.breakers.services import force
from controlplane.core.changes import Actor, unit_of_work
from controlplane.core.models import AuditEntry
from controlplane.fleet.models import Engine, Model, Node
from controlplane.fleet.services import NODES
from controlplane.telemetry import query
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.store.writer import Owner
from controlplane.web.shown.fleet import fleet
from tests.controlplane.telemetry.filling import store
from tests.web.conftest import digest_of, write
from tests.web.hardware import add_engine, fault, gpu_uuid, node
from wire.write_body import STALE, Series

FLEET = "/fleet/"


@pytest.fixture(autouse=True)
def own_store(settings: Any, tmp_path: Path) -> Path:
    settings.DATA_DIR = tmp_path
    return store_path()


def row_of(page: str, name: str) -> str:
    start = page.index(f'id="node-{name}"')
    return page[page.rindex("<tr", 0, start) : page.index("</tr>", start)]


def test_what_needs_a_person_comes_first_with_its_reason(viewer: Client) -> None:
    node("alpha")
    node("beta", engines=["llama-a"], lost=[3, 5])
    node("gamma", reported_at=timezone.now() - timedelta(hours=3))
    node("omega")
    write(lambda unit: NODES.cordon(unit, "omega"))
    assert [(line.name, line.health) for line in fleet().nodes] == [
        ("gamma", "lost"),
        ("beta", "degraded"),
        ("omega", "cordoned"),
        ("alpha", "ok"),
    ]
    page = viewer.get(FLEET).content.decode()
    assert "its agent is silent" in row_of(page, "gamma")
    assert "3 h ago" in row_of(page, "gamma")
    assert "GPU 3, GPU 5 off the bus" in row_of(page, "beta")
    assert "set up by a test" in row_of(page, "omega")
    assert "headworks (system)" in row_of(page, "omega")
    assert "2 not working" in page


def test_a_forced_breaker_is_shown_at_each_engine_that_it_holds(viewer: Client) -> None:
    node("rack-1", engines=["llama-a", "llama-b"])
    pool = {"subject_kind": "pool", "subject": "chat", "state": "closed", "expires_in_seconds": 60}
    write(lambda unit: force(unit, pool))
    engine = {"subject_kind": "engine", "subject": "llama-a", "state": "open", "expires_in_seconds": 60}
    forced = write(lambda unit: force(unit, engine))
    for address in (FLEET, "/fleet/rack-1/"):
        page = viewer.get(address).content.decode()
        held = {name: page[page.rindex(f'"name">{name}') :].split("</tr>")[0] for name in ("llama-a", "llama-b")}
        assert "forced open" in held["llama-a"]
        assert f"until {forced.expires_at:%H:%M} UTC by headworks: set up by a test" in held["llama-a"]
        assert "forced closed" in held["llama-b"]
        assert "forced open" not in held["llama-b"]
    Override.objects.update(expires_at=timezone.now())
    assert "forced" not in viewer.get(FLEET).content.decode()


def test_an_incident_is_named_once_and_its_cause_not_again(viewer: Client) -> None:
    node("rack-1", lost=[3])
    incident = fault("rack-1")
    row = row_of(viewer.get(FLEET).content.decode(), "rack-1")
    assert f'<a href="/incidents/{incident.pk}/">XID 79 on GPU 3</a>' in row
    assert "off the bus" not in row
    # The page of the node says all.
    assert "GPU 3 off the bus" in viewer.get("/fleet/rack-1/").content.decode()


XID = "XID 79 (GPU has fallen off the bus) on GPU 3 (NVIDIA H100 80GB HBM3, 00000000:1B:00.0)"


def cordoned_row(viewer: Client, actor: Actor, reason: str, *, for_its_incident: bool = False) -> str:
    """The row of a node with an XID that `actor` cordoned."""
    node("rack-1", lost=[3])
    fault("rack-1", XID)
    with unit_of_work(actor, reason) as unit:
        NODES.cordon(unit, "rack-1")
        if for_its_incident:
            PolicyCordon.objects.create(node="rack-1", at=timezone.now(), incident=Incident.objects.get())
    return row_of(viewer.get(FLEET).content.decode(), "rack-1")


def test_what_an_incident_says_the_cordon_of_the_policy_does_not_say_again(viewer: Client) -> None:
    reason = f"{XID}: class  hardware, action cordon_reboot"
    row = cordoned_row(viewer, Actor("target", "node/rack-1"), reason, for_its_incident=True)
    assert row.count("XID 79") == 1
    assert "action cordon_reboot" not in row
    # Which part it is, the page of the node says.
    assert "XID 79 (GPU has fallen off the bus) on GPU 3</a>" in row
    page = viewer.get("/fleet/rack-1/").content.decode()
    assert "action cordon_reboot" in page
    assert f"{XID}</a>" in page


def test_a_reason_of_the_policy_that_no_incident_says_is_shown(viewer: Client) -> None:
    assert "GPU 5 is lost" in cordoned_row(viewer, Actor("target", "node/rack-1"), "GPU 5 is lost: it is off the bus")


def test_the_words_of_a_person_are_shown_whatever_they_are(viewer: Client) -> None:
    assert f"{XID}: board ordered" in cordoned_row(viewer, Actor("user", "omar"), f"{XID}: board ordered")


def test_a_node_without_gpus_says_why(viewer: Client) -> None:
    Node.objects.create(
        name="cpu-1", reported_at=timezone.now(), gpu_source="none", gpu_problems=["libnvidia-ml.so.1 is not there"]
    )
    row = row_of(viewer.get(FLEET).content.decode(), "cpu-1")
    assert "no GPU: libnvidia-ml.so.1 is not there" in row
    assert '<span class="state good">' in row


def test_an_empty_fleet_says_what_to_do_next(admin: Client, viewer: Client) -> None:
    assert "Make a join token for a node" in admin.get(FLEET).content.decode()
    assert 'href="/targets/join/"' in admin.get(FLEET).content.decode()
    assert "An admin can make one." in viewer.get(FLEET).content.decode()


def test_nodes_and_engines_that_are_simulated_say_so_each(viewer: Client) -> None:
    node("real", engines=["llama-a"])
    node("unreal", simulated=True)
    Engine.objects.filter(name="llama-a").update(version="0.11.0+simulated")
    page = viewer.get(FLEET).content.decode()
    assert "SIMULATED" in row_of(page, "unreal")
    assert "SIMULATED" not in row_of(page, "real")
    assert page.count("SIMULATED") == 2


def test_the_last_measured_values_stand_in_the_cells(own_store: Path, viewer: Client) -> None:
    node("rack-1", engines=["llama-a"], lost=[1])
    now_ms = int(time.time() * 1000)
    values = [
        ("DCGM_FI_DEV_GPU_UTIL", 0, 87.0, now_ms - 5000),
        ("DCGM_FI_DEV_GPU_TEMP", 0, 71.0, now_ms - 5000),
        ("DCGM_FI_DEV_FB_USED", 0, 40_960.0, now_ms - 5000),
        # Measured before it was lost, and too long ago: neither is how it is now.
        ("DCGM_FI_DEV_GPU_UTIL", 1, 93.0, now_ms - 5000),
        ("DCGM_FI_DEV_GPU_UTIL", 2, 94.0, now_ms - 120_000),
    ]
    series = [
        Series({"__name__": name, "node": "rack-1", "UUID": gpu_uuid("rack-1", index)}, [(at_ms, value)])
        for name, index, value, at_ms in values
    ]
    engine = {"node": "rack-1", "engine": "llama-a"}
    loads = {"kv_cache_usage_ratio": 0.62, "requests_running": 14.0, "requests_waiting": 3.0}
    series += [Series({"__name__": f"headworks_engine_{name}", **engine}, [(now_ms, v)]) for name, v in loads.items()]
    # It was released, or no longer says it: its series has ended.
    ended = {"__name__": "DCGM_FI_DEV_GPU_UTIL", "node": "rack-1", "UUID": gpu_uuid("rack-1", 3)}
    series.append(Series(ended, [(now_ms - 5000, 95.0), (now_ms - 1000, STALE)]))
    store(own_store, series, Owner("node", "rack-1"))
    page = viewer.get(FLEET).content.decode()
    row = row_of(page, "rack-1")
    assert "87<small>%</small>" in row
    assert "71°" in row
    assert "memory 40 GiB of 80 GiB" in row
    assert not re.search(r"9[345]<small>", row)
    engines = page[page.index('id="engines"') :]
    assert re.search(r"62 %.*>14<.*>3<", engines, re.DOTALL)


def test_what_a_silent_agent_said_last_does_not_pass_for_now(own_store: Path, viewer: Client) -> None:
    node("rack-1", engines=["llama-a"], reported_at=timezone.now() - timedelta(minutes=2))
    now_ms = int(time.time() * 1000)
    labels = {"__name__": "DCGM_FI_DEV_GPU_UTIL", "node": "rack-1", "UUID": gpu_uuid("rack-1", 0)}
    store(own_store, [Series(labels, [(now_ms - 5000, 87.0)])], Owner("node", "rack-1"))
    page = viewer.get(FLEET).content.decode()
    assert "87<small>" not in page
    assert re.search(r"unknown</span>\s+<span class=\"name\">llama-a", row_of(page, "rack-1"))
    assert "up</span>" not in page
    # Nor are its GPUs called well, or broken.
    assert 'class="bad"' not in row_of(page, "rack-1")
    gpus = viewer.get("/fleet/rack-1/").content.decode().partition('id="gpus"')[2].partition("</section>")[0]
    assert gpus.count("unknown</span>") == 8
    assert "not working" not in page


def test_without_a_store_the_page_comes_and_says_what_is_missing(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(promql: str, at_ms: int) -> list[query.Sample]:
        raise query.QueryError("the metrics server does not answer")

    node("rack-1")
    monkeypatch.setattr(query, "instant", away)
    page = viewer.get(FLEET).content.decode()
    assert "No live values of GPUs and engines: the metrics server does not answer" in page
    assert "rack-1" in page


def test_a_dozen_nodes_cost_no_more_queries_than_three(viewer: Client) -> None:
    def queries(path: str) -> int:
        with CaptureQueriesContext(connection) as captured:
            assert viewer.get(path).status_code == 200
        return len(captured)

    def fill(start: int, end: int) -> None:
        for number in range(start, end):
            node(f"rack-{number}", engines=[f"engine-{number}"])
            fault(f"rack-{number}")
            if number % 2:
                write(partial(NODES.cordon, name=f"rack-{number}"))

    paths = [FLEET, "/fleet-panel/", "/fleet/rack-0/", "/incidents/"]
    fill(0, 3)
    few = [queries(path) for path in paths]
    fill(3, 12)
    assert [queries(path) for path in paths] == few
    assert max(few) <= 25


def test_a_cordon_is_reviewed_then_set_with_the_reason_that_was_given(operator: Client) -> None:
    node("rack-1")
    page = operator.get("/fleet/rack-1/cordon/").content.decode()
    assert "Its engines get no new requests" in page
    assert "<ins>the reason that you give</ins>" in page
    form = {"step": "apply", "digest": digest_of(page), "reason": "PSU <fails>"}
    answer = operator.post("/fleet/rack-1/cordon/", form)
    assert answer.status_code == 302
    entry = AuditEntry.objects.latest("pk")
    assert answer["Location"] == f"/fleet/rack-1/?change={entry.change_id}"
    row = NODES.get("rack-1")
    assert (row.cordoned, row.cordon_reason) == (True, "PSU <fails>")
    page = operator.get("/fleet/rack-1/").content.decode()
    assert escape("PSU <fails>") in page
    assert "operator-person" in page
    assert 'href="/fleet/rack-1/uncordon/"' in page
    assert 'href="/fleet/rack-1/cordon/"' not in page

    page = operator.get("/fleet/rack-1/uncordon/").content.decode()
    operator.post("/fleet/rack-1/uncordon/", {"step": "apply", "digest": digest_of(page), "reason": "PSU changed"})
    assert not NODES.get("rack-1").cordoned


def test_a_cordon_that_the_policy_set_meanwhile_is_shown_before_it_is_overwritten(operator: Client) -> None:
    node("rack-1")
    page = operator.get("/fleet/rack-1/cordon/").content.decode()
    write(lambda unit: NODES.cordon(unit, "rack-1"))
    form = {"step": "apply", "digest": digest_of(page), "reason": "mine"}
    assert operator.post("/fleet/rack-1/cordon/", form).status_code == 409
    assert NODES.get("rack-1").cordon_reason == "set up by a test"


def test_an_engine_is_cordoned_by_itself(operator: Client) -> None:
    node("rack-1", engines=["llama-a"])
    add_engine("direct", None)
    for name, back in {"llama-a": "/fleet/rack-1/", "direct": FLEET}.items():
        path = f"/engines/{name}/cordon/"
        page = operator.get(path).content.decode()
        answer = operator.post(path, {"step": "apply", "digest": digest_of(page), "reason": "canary"})
        assert answer["Location"].startswith(back)
        assert Engine.objects.get(name=name).cordoned
    assert operator.get(FLEET).content.decode().count("/uncordon/") == 2


def test_a_viewer_sees_no_buttons(viewer: Client) -> None:
    node("rack-1", engines=["llama-a"])
    for path in (FLEET, "/fleet-panel/", "/fleet/rack-1/"):
        assert "cordon/" not in viewer.get(path).content.decode()


def test_the_page_of_a_node_shows_its_events(viewer: Client) -> None:
    node("rack-1")
    now = timezone.now()
    NodeEvent.objects.create(
        node="rack-1", event_id="e" * 8, at=now, received_at=now, kind="xid", subject="GPU-3", severity="critical",
        detail="XID 79 <b>", incident=fault("rack-1"),
    )  # fmt: skip
    page = viewer.get("/fleet/rack-1/").content.decode()
    assert "<code>xid</code>" in page
    assert "XID 79 &lt;b&gt;" in page


def test_states_and_reasons_are_turkish_where_the_browser_asks_for_it(viewer: Client) -> None:
    node("rack-1", lost=[3])
    page = viewer.get(FLEET, headers={"accept-language": "tr"}).content.decode()
    assert "arızalı" in page
    assert "GPU 3 veri yolundan düştü" in page


def test_a_start_stands_beside_what_its_model_allows(viewer: Client) -> None:
    node("rack-1", engines=["llama-a"])
    Engine.objects.update(facts={"start_phases_ms": {"load_model": 15_000}})
    Model.objects.update(cold_start_budget_ms={"load_model": 12_000, "total": 60_000})
    page = viewer.get("/fleet/rack-1/").content.decode()
    assert re.search(r"Start: load_model</dt><dd class=\"tone-warning\">15\D?000 ms of 12\D?000 ms", page)
    assert re.search(r"Start: total</dt><dd>not known of 60\D?000 ms", page)
