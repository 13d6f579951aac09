"""A forced breaker turns at every gateway in the same second: two processes that follow one control plane."""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from itertools import groupby, pairwise

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.controlplane.configs.live import Live, live_site
from tests.services import Process, free_port, wait_for

pytestmark = pytest.mark.controlplane

MODEL = "team/forced"
GATEWAYS = ("gw-1", "gw-2")
# By pool. No request goes to the idle one.
ENGINES = {"chat": "e-1", "idle": "e-2"}
OPEN_SECONDS, CLOSED_SECONDS = 3, 6


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_site(tmp_path_factory.mktemp("control-plane")) as live:
        yield live


@pytest.fixture(scope="module")
def gateways(live: Live, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Addresses of two gateways before two engines that nobody serves, whose breakers the first failure opens."""
    breaker = {"minimum_requests": 1, "error_permille": 1, "cooldown_ms": 600_000}
    live.rest.post("/models", {"name": MODEL, "max_context_tokens": 4096, "max_tokens": 1024})
    for pool, engine in ENGINES.items():
        live.rest.post("/pools", {"name": pool, "model": MODEL, "breaker": breaker})
        url = f"http://127.0.0.1:{free_port()}"
        live.rest.post("/engines", {"name": engine, "pool": pool, "url": url, "served_model": MODEL})
    live.rest.post("/routes", {"name": "all", "order": 1, "match": {}, "pools": {"chat": 1000}})
    live.rest.post("/tenants", {"name": "acme"})
    tmp_path = tmp_path_factory.mktemp("gateways")
    with ExitStack() as processes:
        addresses = []
        for name in GATEWAYS:
            port, join_token = free_port(), tmp_path / f"{name}.token"
            join_token.write_text(live.rest.post("/targets/join-tokens", {"kind": "gateway", "name": name})["secret"])
            argv = [
                sys.executable, "-m", "gateway.cli", "--control-url", live.address, "--name", name,
                "--join-token-file", str(join_token), "--state-dir", str(tmp_path / name), "--port", str(port),
            ]  # fmt: skip
            quickly = {"HEADWORKS_GATEWAY_PUSH_INTERVAL_SECONDS": "0.2"}
            process = Process(argv, log=tmp_path / f"{name}.log", environment=quickly)
            processes.enter_context(process).wait_for_http(f"http://127.0.0.1:{port}/readyz")
            addresses.append(f"http://127.0.0.1:{port}")
        yield addresses


def state_at(address: str) -> str:
    """The state that holds for e-1 at a gateway, as its metrics page tells."""
    with urllib.request.urlopen(f"{address}/metrics") as answer:
        page = answer.read().decode()
    return next(
        sample.labels["state"]
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "headworks_gateway_breaker_state"
        and sample.labels["engine"] == ENGINES["chat"]
        and sample.value == 1
    )


def fail_once(address: str, secret: str) -> str:
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}).encode()
    headers = {"Authorization": f"Bearer {secret}"}
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(f"{address}/v1/chat/completions", body, headers))
    return str(json.load(refused.value)["error"]["code"])


def test_the_strictest_holds_then_the_next_then_the_automatic_at_both_in_the_same_second(
    live: Live, gateways: list[str]
) -> None:
    key = live.rest.call("POST", "/tenants/acme/keys", {"label": "k"}, wait="applied", timeout=10)
    for address in gateways:
        assert fail_once(address, key["secret"]) == "engine_unreachable"
        assert state_at(address) == "open"
    forced = {"subject_kind": "pool", "subject": "chat"}
    closed = {**forced, "state": "closed", "expires_in_seconds": CLOSED_SECONDS}
    opened = {**forced, "state": "open", "expires_in_seconds": OPEN_SECONDS}
    # The automatic state is open too: that a forced one holds shows where it is closed.
    until_closed = live.rest.call("POST", "/overrides", closed, wait="applied", timeout=10)["item"]["name"]
    until_opened = live.rest.call("POST", "/overrides", opened, wait="applied", timeout=10)["item"]["name"]
    ends = {each["name"]: each["expires_at"] for each in live.rest.get("/overrides")["items"]}
    seen = sampled(gateways, CLOSED_SECONDS + 1)
    for states in seen:
        assert [state for state, _ in groupby(state for _, state in states)] == ["open", "closed", "open"]
    turns = [turned_at(states) for states in seen]
    for name, moments in zip((until_opened, until_closed), zip(*turns, strict=True), strict=True):
        expires = unix(ends[name])
        # Sampling adds its own pace; a turn before the end is none.
        assert all(expires <= moment < expires + 1 for moment in moments), (name, expires, moments)


def test_where_breakers_stand_is_shown_as_the_gateways_tell(live: Live, gateways: list[str]) -> None:
    def told() -> dict[str, str | None]:
        (pool,) = (each for each in live.rest.get("/breakers")["items"] if each["pool"] == "idle")
        (engine,) = pool["engines"]
        states: dict[str, str | None] = engine["gateways"]
        return states

    wait_for(lambda: told() == dict.fromkeys(GATEWAYS, "closed"), 20, "both gateways to tell")
    body = {"subject_kind": "engine", "subject": ENGINES["idle"], "state": "open", "expires_in_seconds": 600}
    name = live.rest.post("/overrides", body)["item"]["name"]
    wait_for(lambda: told() == dict.fromkeys(GATEWAYS, "open"), 20, "both to tell of the override")
    live.rest.call("DELETE", f"/overrides/{name}")
    wait_for(lambda: told() == dict.fromkeys(GATEWAYS, "closed"), 20, "both to tell that it is lifted")


Samples = list[tuple[float, str]]


def sampled(addresses: list[str], seconds: float) -> list[Samples]:
    """(Unix time when it had answered, state) of each, by turns, as fast as they answer."""
    found: list[Samples] = [[] for _ in addresses]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for samples, address in zip(found, addresses, strict=True):
            state = state_at(address)
            samples.append((time.time(), state))
        time.sleep(0.02)
    return found


def turned_at(samples: Samples) -> list[float]:
    """When each new state was first seen."""
    return [after for (_, was), (after, now) in pairwise(samples) if now != was]


def unix(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
