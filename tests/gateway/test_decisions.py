"""Which requests are told of, what waits and what gives way, and what a control plane then hears."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from gateway.batches.line_run import LINE_STAGES
from gateway.decisions import DecisionLog, Kind, Sampler
from gateway.pipeline import STAGES
from gateway.refusals import REASONS
from tests.gateway.fleet import (
    RunningGateway,
    ScriptedEngine,
    changed,
    chat,
    configuration,
    running_gateway,
    scripted_engine,
    shared_configuration,
)
from wire.messages import Decision

TENANTS = st.sampled_from("abc")
# (tenant, ms since the request before)
ARRIVALS = st.lists(st.tuples(TENANTS, st.integers(0, 400)), max_size=300)


@given(ARRIVALS)
def test_a_tenant_is_told_of_once_in_every_second_and_in_all_at_most_one_more_in_a_hundred(
    arrivals: list[tuple[str, int]],
) -> None:
    sampler, now_ms = Sampler(), 1_000
    seconds: set[tuple[str, int]] = set()
    told: Counter[tuple[str, int]] = Counter()
    for tenant, later_ms in arrivals:
        now_ms += later_ms
        seconds.add((tenant, now_ms // 1000))
        told[tenant, now_ms // 1000] += sampler.takes(tenant, now_ms)
    assert all(told[second] >= 1 for second in seconds)
    assert told.total() <= len(seconds) + len(arrivals) // 100


def test_of_many_within_a_second_every_hundredth_is_told_of() -> None:
    sampler = Sampler()
    assert sum(sampler.takes("a", 5_000) for _ in range(1_000)) == 1 + 10


class Waiting:
    """A log, and what it dropped."""

    def __init__(self, capacity: int) -> None:
        self.dropped: list[Kind] = []
        self.log = DecisionLog(capacity, self.dropped.append)

    def put(self, *kinds: Kind) -> None:
        for number, kind in enumerate(kinds):
            self.log.put(kind, Decision(f"{kind}-{number}", 1, 1, "serve", "none", 200))

    def taken(self, count: int = 1000) -> list[str]:
        return [decision.request_id for decision in self.log.take(count)]


def test_samples_give_way_before_any_refusal_and_the_oldest_first() -> None:
    waiting = Waiting(3)
    waiting.put("admitted", "refused", "admitted", "refused", "refused", "refused")
    assert waiting.dropped == ["admitted", "admitted", "refused"]
    assert waiting.taken() == ["refused-3", "refused-4", "refused-5"]


def test_a_sample_does_not_displace_a_refusal() -> None:
    waiting = Waiting(2)
    waiting.put("refused", "refused", "admitted")
    assert waiting.dropped == ["admitted"]
    assert waiting.taken() == ["refused-0", "refused-1"]


@given(st.lists(st.sampled_from(["admitted", "refused"])), st.integers(1, 10), st.integers(1, 5))
def test_what_was_put_is_taken_once_or_counted_as_dropped(kinds: list[Kind], capacity: int, count: int) -> None:
    waiting = Waiting(capacity)
    waiting.put(*kinds)
    assert len(waiting.log) == min(capacity, len(kinds))
    taken: list[str] = []
    while some := waiting.taken(count):
        assert len(some) <= count
        taken += some
    assert len(set(taken)) == len(taken) == len(kinds) - len(waiting.dropped)
    assert kinds.count("refused") - waiting.dropped.count("refused") == min(capacity, kinds.count("refused"))


# With a process

in_one_loop = pytest.mark.asyncio(loop_scope="module")

engine = pytest_asyncio.fixture(scripted_engine, loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningGateway]:
    async with running_gateway(tmp_path_factory.mktemp("decisions"), configuration()) as gateway:
        yield gateway


@pytest_asyncio.fixture(loop_scope="module")
async def gateway(shared: RunningGateway, engine: ScriptedEngine) -> RunningGateway:
    await shared.begin_anew(shared_configuration(engine.url))
    return shared


async def told(gateway: RunningGateway, request_id: str) -> dict[str, Any]:
    """The decision of a request, once the control plane has heard of it."""

    def heard() -> list[dict[str, Any]]:
        return [each for each in gateway.control.decisions if each["request_id"] == request_id]

    async def count() -> int:
        return len(heard())

    await gateway.until(count, 1, f"the decision of {request_id}")
    return heard()[0]


async def ask(gateway: RunningGateway, request_id: str, body: Any = None, **options: Any) -> int:
    headers = {"X-Request-Id": request_id, **options.pop("headers", {})}
    status, _, _ = await gateway.call(chat(max_tokens=20) if body is None else body, headers=headers, **options)
    return status


@in_one_loop
async def test_an_admitted_request_is_told_with_its_numbers(gateway: RunningGateway) -> None:
    headers = {"X-Priority-Class": "batch", "X-Request-Timeout-Ms": "30000"}
    # Of each tenant one in a second is told of, and those of alpha are many here.
    assert await ask(gateway, "a-1", tenant="beta", headers=headers) == 200
    decision = await told(gateway, "a-1")
    numbers, stages = decision.pop("numbers"), decision.pop("stages")
    assert abs(decision.pop("at") / 1000 - time.time()) < 60
    assert decision == {
        "request_id": "a-1", "revision": gateway.control.revision, "stage": "serve", "reason": "admitted",
        "status": 200, "tenant": "beta", "class": "batch", "pool": "main",
    }  # fmt: skip
    assert (numbers["max_tokens"], numbers["sequences"], numbers["output_tokens"]) == (20, 1, 2)
    assert numbers["prompt_tokens"] > 0
    assert numbers["first_byte_ms"] >= numbers["queue_ms"] >= 0
    assert [note["stage"] for note in stages] == [stage.__name__ for stage in STAGES]
    weighed = {note["stage"]: note.get("numbers", {}) for note in stages}
    assert weighed["identify"] == {"timeout_ms": 30_000}
    assert weighed["read"]["body_bytes"] == len(json.dumps(chat(max_tokens=20)))
    assert weighed["route"] == {"prompt_tokens": numbers["prompt_tokens"], "max_tokens": 20}
    assert weighed["bound_output"] == {"asked_max_tokens": 20, "max_tokens": 20, "sequences": 1}
    # Rounded to a whole millisecond, upward by half of one at most.
    assert sum(note.get("took_us", 0) for note in stages) >= (numbers["first_byte_ms"] - 1) * 1000


def test_the_page_about_refusals_names_every_stage() -> None:
    page = (Path(__file__).parents[2] / "docs/why-refused.md").read_text()
    assert [stage.__name__ for stage in LINE_STAGES if f"`{stage.__name__}`" not in page] == []


@in_one_loop
async def test_a_refusal_is_told_with_what_was_weighed(gateway: RunningGateway) -> None:
    await gateway.publish(changed(gateway.control.content, tenants__alpha={"tpm_limit": 60}))
    assert await ask(gateway, "b-1", chat(max_tokens=40)) == 200
    assert await ask(gateway, "b-2", chat(max_tokens=50)) == 429
    decision = await told(gateway, "b-2")
    assert (decision["stage"], decision["reason"], decision["status"]) == ("take_quota", "tpm_limit", 429)
    assert decision["numbers"]["limit"] == 60
    assert decision["numbers"]["left"] < decision["numbers"]["asked"] <= 60
    assert decision["numbers"]["retry_after_ms"] > 0
    assert "tokens a minute are left" in decision["message"]
    assert (decision["tenant"], decision["pool"]) == ("alpha", "main")
    way = [note["stage"] for note in decision["stages"]]
    assert way == [stage.__name__ for stage in STAGES][: len(way)]
    assert way[-1] == "take_quota"


@in_one_loop
async def test_every_refusal_is_told_though_nobody_is_known_yet(gateway: RunningGateway) -> None:
    assert await ask(gateway, "c-1", tenant=None) == 401
    assert await ask(gateway, "c-2", chat(model="none")) == 404
    assert await ask(gateway, "c-3", path="/v1/nowhere") == 404
    found = [await told(gateway, name) for name in ("c-1", "c-2", "c-3")]
    assert [(each["stage"], each["reason"]) for each in found] == [
        ("identify", "missing_key"),
        ("read", "model_not_found"),
        ("receive", "unknown_path"),
    ]
    assert "tenant" not in found[0]
    assert found[1]["tenant"] == "alpha"


@in_one_loop
async def test_what_an_engine_says_of_a_prompt_stays_here(gateway: RunningGateway, engine: ScriptedEngine) -> None:
    engine.behave = engine.failing(400, {"error": {"message": "cannot read 'my secret diary'"}})
    assert await ask(gateway, "d-1") == 400
    decision = await told(gateway, "d-1")
    assert (decision["reason"], decision["message"]) == ("engine_rejected", REASONS["engine_rejected"].means)


@in_one_loop
async def test_an_engines_failure_is_told_as_a_refusal(gateway: RunningGateway, engine: ScriptedEngine) -> None:
    engine.behave = engine.failing(500)
    assert await ask(gateway, "e-1") == 502
    decision = await told(gateway, "e-1")
    assert (decision["stage"], decision["reason"], decision["pool"]) == ("serve", "engine_error", "main")
    assert engine.url not in decision["message"]


@in_one_loop
async def test_decisions_wait_for_a_control_plane_that_is_away(gateway: RunningGateway) -> None:
    await gateway.control.stop()
    assert await ask(gateway, "f-1", tenant=None) == 401
    assert [each for each in gateway.control.decisions if each["request_id"] == "f-1"] == []
    await gateway.control.start()
    assert (await told(gateway, "f-1"))["reason"] == "missing_key"


@in_one_loop
async def test_what_does_not_fit_is_counted_and_the_newest_refusals_are_told(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    few = {"HEADWORKS_GATEWAY_DECISIONS_WAITING": "100"}
    async with running_gateway(tmp_path, configuration(engine.url), few) as gateway:
        await gateway.control.stop()
        assert await ask(gateway, "first", tenant=None) == 401

        async def waits() -> bool:
            return "kept in memory" in gateway.process.log_tail()

        # What is being sent is kept beside the queue.
        await gateway.until(waits, True, "the first one to find nobody")
        for number in range(150):
            assert await ask(gateway, f"g-{number}", tenant=None) == 401
        assert await gateway.metric("headworks_gateway_decisions_dropped_total", kind="refused") == 50
        await gateway.control.start()
        await told(gateway, "g-149")
        assert [each["request_id"] for each in gateway.control.decisions] == [
            "first",
            *(f"g-{number}" for number in range(50, 150)),
        ]


@in_one_loop
async def test_what_waits_is_told_before_the_gateway_ends(engine: ScriptedEngine, tmp_path: Path) -> None:
    async with running_gateway(tmp_path, configuration(engine.url)) as gateway:
        assert await ask(gateway, "h-1") == 200
        await asyncio.to_thread(gateway.process.stop)
    assert [each["request_id"] for each in gateway.control.decisions] == ["h-1"]
    # Two where the answer ended in the next minute.
    assert {(each["tenant"], each["pool"]) for each in gateway.control.sketches} == {("alpha", "main")}
    assert sum(each.get("arrivals", 0) for each in gateway.control.sketches) == 1
