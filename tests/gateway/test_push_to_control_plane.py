"""A gateway process, a control plane process, and PromQL over what the one pushed to the other."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.configs.live import Live, live_site
from tests.services import Process, free_port, wait_for
from wire.push import WRITE_PATH
from wire.write_body import CONTENT_TYPE, Series, encode

pytestmark = pytest.mark.controlplane

MODEL = "team/pushed"
SAMPLES = 'headworks_gateway_draining{gateway="gw"}[5m]'
RATE = "sum by (tenant) (rate(headworks_gateway_requests_total[1m]))"


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    folder = tmp_path / "control-plane"
    folder.mkdir()
    with live_site(folder, HEADWORKS_TARGET_SILENT_SECONDS="12") as live:
        yield live


@pytest.fixture
def gateway(live: Live, tmp_path: Path) -> Iterator[tuple[Process, str]]:
    """A gateway `gw` before one simulated engine, and its address."""
    engine_port, port = free_port(), free_port()
    engine_url = f"http://127.0.0.1:{engine_port}"
    rows = {
        "/models": {"name": MODEL, "max_context_tokens": 4096, "max_tokens": 1024},
        "/pools": {"name": "chat", "model": MODEL},
        "/engines": {"name": "e-1", "pool": "chat", "kind": "vllm", "url": engine_url, "served_model": MODEL},
        "/routes": {"name": "all", "order": 1, "match": {}, "pools": {"chat": 1000}},
    }
    for path, row in rows.items():
        live.rest.post(path, row)
    join_token = tmp_path / "join-token"
    join_token.write_text(live.rest.post("/targets/join-tokens", {"kind": "gateway", "name": "gw"})["secret"])
    engine = [sys.executable, "-m", "simulator.engine", "--port", str(engine_port), "--model", MODEL]
    argv = [
        sys.executable, "-m", "gateway.cli", "--control-url", live.address, "--join-token-file", str(join_token),
        "--name", "gw", "--state-dir", str(tmp_path / "gateway"), "--port", str(port),
    ]  # fmt: skip
    quickly = {"HEADWORKS_GATEWAY_PUSH_INTERVAL_SECONDS": "0.2"}
    with (
        Process([*engine, "--speed", "instant"], log=tmp_path / "engine.log") as engine_process,
        Process(argv, log=tmp_path / "gateway.log", environment=quickly) as process,
    ):
        engine_process.wait_for_port(engine_port)
        process.wait_for_http(f"http://127.0.0.1:{port}/readyz")
        yield process, f"http://127.0.0.1:{port}"


@pytest.fixture
def gateway_url(gateway: tuple[Process, str]) -> str:
    return gateway[1]


def test_promql_tells_the_rate_of_requests_by_tenant(live: Live, gateway_url: str) -> None:
    keys = {}
    for tenant in ("acme", "globex"):
        live.rest.post("/tenants", {"name": tenant})
        keys[tenant] = live.rest.call("POST", f"/tenants/{tenant}/keys", {"label": "k"}, wait="applied", timeout=10)

    def ask(tenant: str) -> None:
        body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}).encode()
        headers = {"Authorization": f"Bearer {keys[tenant]['secret']}", "Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(f"{gateway_url}/v1/chat/completions", body, headers)):
            pass

    def counted(tenant: str) -> float:
        rows = live.rest.query(f'headworks_gateway_requests_total{{tenant="{tenant}", gateway="gw", outcome="ok"}}')
        return sum(float(row["value"][1]) for row in rows)

    ask("acme")
    ask("globex")
    wait_for(lambda: counted("acme") == counted("globex") == 1, 20, "the first request of each")
    for _ in range(15):
        ask("acme")
    ask("globex")
    wait_for(lambda: (counted("acme"), counted("globex")) == (16, 2), 20, "every request")
    rates = {row["metric"]["tenant"]: float(row["value"][1]) for row in live.rest.query(RATE)}
    assert rates.keys() == {"acme", "globex"}
    # Eight times as many, the first of each included; rate() extrapolates, since they came at different moments.
    assert rates["acme"] > 5 * rates["globex"] > 0
    names = {row["metric"]["__name__"] for row in live.rest.query('{gateway="gw"}')}
    assert {"headworks_gateway_e2e_seconds_bucket", "headworks_gateway_breaker_state"} <= names
    assert not any(name.endswith("_created") for name in names)


def test_what_a_client_reports_of_a_kept_answer_is_an_event_of_its_gateway(live: Live, gateway_url: str) -> None:
    live.rest.post("/cache-policies", {"name": "faq", "exact": {}})
    live.rest.post("/tenants", {"name": "acme", "cache_policy": "faq"})
    key = live.rest.call("POST", "/tenants/acme/keys", {"label": "k"}, wait="applied", timeout=10)["secret"]

    def post(path: str, body: dict[str, Any]) -> tuple[dict[str, Any], str, str]:
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{gateway_url}{path}", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request) as answer:
            told = answer.headers
            return json.loads(answer.read()), told["x-request-id"], told["x-headworks-cache"] or ""

    chat = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
    first, _, _ = post("/v1/chat/completions", chat)
    wait_for(lambda: post("/v1/chat/completions", chat)[2].startswith("exact"), 20, "the answer to be kept")
    again, request_id, _ = post("/v1/chat/completions", chat)
    assert again == first
    said = {"request_id": request_id, "verdict": "wrong", "comment": "it is old"}
    assert post("/v1/feedback", said)[0]["effect"] == "evicted"
    wait_for(lambda: live.rest.get("/events", gateway="gw")["items"], 20, "the event")
    (event,) = live.rest.get("/events", gateway="gw")["items"]
    assert (event["kind"], event["subject"], event["severity"]) == ("feedback_wrong", request_id, "warning")
    assert event["detail"] == f"tenant acme, model {MODEL}, answered by the exact cache: it is old"
    assert (event["node"], event["incident"]) == (None, None)
    assert live.rest.get("/incidents")["items"] == []


def test_samples_of_the_time_in_which_the_control_plane_was_killed_are_there_afterwards(
    live: Live, gateway_url: str
) -> None:
    def newest_ms() -> int:
        return max((at_ms for row in live.rest.query(SAMPLES) for at_ms in times_ms(row)), default=0)

    wait_for(newest_ms, 20, "a first sample")
    live.kill()
    killed_ms = int(time.time() * 1000)
    wait_for(lambda: time.time() * 1000 > killed_ms + 1500, 10, "an absence of some pushes")
    started_ms = int(time.time() * 1000)
    live.start()
    wait_for(lambda: newest_ms() > started_ms, 20, "a sample from after the absence")
    (row,) = live.rest.query(SAMPLES)
    assert len([at_ms for at_ms in times_ms(row) if killed_ms < at_ms < started_ms]) > 1


def test_a_gateway_that_hangs_is_lost_though_its_stream_stays_open(live: Live, gateway: tuple[Process, str]) -> None:
    process, _ = gateway

    def stands(state: str) -> bool:
        (shown,) = live.rest.get("/config/convergence")["targets"]
        return bool(shown["state"] == state and shown["connected"])

    wait_for(lambda: stands("applied"), 20, "the gateway to be applied")
    # Of one that never pushed the open stream counts.
    wait_for(lambda: live.rest.query(SAMPLES), 20, "a first push")
    os.kill(process.pid, signal.SIGSTOP)
    try:
        wait_for(lambda: stands("lost"), 25, "the stopped gateway to be lost")
    finally:
        os.kill(process.pid, signal.SIGCONT)
    wait_for(lambda: stands("applied"), 20, "the gateway to be heard of again")


def test_a_gateway_cannot_write_the_series_of_another(live: Live) -> None:
    other = live.enrol("gateway", "other")
    body = encode(
        [Series({"__name__": "headworks_gateway_draining", "gateway": "gw"}, [(int(time.time() * 1000), 0.0)])]
    )
    headers = {"Authorization": f"Bearer {other.token}", "Content-Encoding": "snappy", "Content-Type": CONTENT_TYPE}
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(live.address + WRITE_PATH, body, headers))
    assert refused.value.code == 400
    assert json.load(refused.value)["code"] == "foreign_owner"
    assert live.rest.query(SAMPLES) == []


def times_ms(row: dict[str, Any]) -> list[int]:
    return [int(float(at_seconds) * 1000) for at_seconds, _ in row["values"]]


def test_the_control_plane_says_why_a_request_was_refused_and_how_long_requests_were(
    live: Live, gateway: tuple[Process, str]
) -> None:
    process, gateway_url = gateway
    live.rest.post("/tenants", {"name": "acme", "tpm_limit": 100})
    key = live.rest.call("POST", "/tenants/acme/keys", {"label": "k"}, wait="applied", timeout=10)
    body = json.dumps(
        {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "n": 50, "max_tokens": 9}
    ).encode()
    headers = {"Authorization": f"Bearer {key['secret']}", "X-Request-Id": "why/this:1"}
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(f"{gateway_url}/v1/chat/completions", body, headers))
    assert refused.value.code == 400
    listed = "/decisions?tenant=acme&reason=never_fits"
    wait_for(lambda: live.rest.get(listed)["items"], 20, "the decision to be told")
    (decision,) = live.rest.get("/decisions/why/this:1")["decisions"]
    assert (decision["gateway"], decision["tenant"], decision["pool"]) == ("gw", "acme", "chat")
    assert decision["numbers"]["limit"] == 100
    assert "gateway gw refused request why/this:1 of tenant acme" in decision["words"]
    assert "the limit is 100 a minute" in decision["words"]
    # A gateway that leaves tells of the minute that has not ended.
    process.stop()
    until = datetime.fromtimestamp(time.time() + 120, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    (asked,) = live.rest.get(f"/sketches?until={until}&by=tenant")["items"]
    assert (asked["tenant"], asked["arrivals"], asked["max_tokens"]["p50"]) == ("acme", 1, 9)
