"""What is counted of requests in which minute, and what of it waits."""

from __future__ import annotations

import asyncio

import pytest

from gateway import sketches
from gateway.sketches import MinuteSketches
from tests.gateway.fleet import RunningGateway, changed, chat
from wire.sketches import Sketch, added, bucket_of

MINUTE = 1_800_000_000_000


class Minutes(MinuteSketches):
    """With a clock that a test sets."""

    def __init__(self, rows_max: int = 100) -> None:
        self.now_ms = MINUTE
        self.dropped: list[int] = []
        super().__init__(lambda: self.now_ms, rows_max, self.dropped.append)


def test_a_minute_is_told_once_it_has_ended() -> None:
    minutes = Minutes()
    minutes.arrived("acme", "batch", "chat", 100, 16)
    minutes.now_ms += 59_999
    minutes.arrived("acme", "batch", "chat", 100, 2000)
    assert minutes.take(10) == []
    minutes.now_ms += 1
    assert minutes.take(10) == [
        Sketch(MINUTE, "acme", "batch", "chat", 2, [(bucket_of(100), 2)], [(16, 1), (bucket_of(2000), 1)], [])
    ]
    assert minutes.take(10) == []


def test_an_answer_counts_in_the_minute_in_which_it_ends() -> None:
    minutes = Minutes()
    minutes.arrived("acme", "", "chat", 10, 20)
    minutes.now_ms += 61_000
    minutes.answered("acme", "", "spare", 7)
    first, second = minutes.take(10, all_of_them=True)
    assert (first.minute, first.pool, first.arrivals, first.output_tokens) == (MINUTE, "chat", 1, [])
    assert (second.minute, second.pool, second.arrivals, second.output_tokens) == (
        MINUTE + 60_000,
        "spare",
        0,
        [(7, 1)],
    )
    assert (first.priority_class, second.priority_class) == ("unknown", "unknown")


def test_a_clock_that_is_set_back_goes_on_in_its_minute() -> None:
    minutes = Minutes()
    minutes.arrived("acme", "", "chat", 10, 20)
    minutes.now_ms -= 3_600_000
    minutes.arrived("acme", "", "chat", 10, 20)
    (sketch,) = minutes.take(10, all_of_them=True)
    assert (sketch.minute, sketch.arrivals) == (MINUTE, 2)


def test_the_oldest_minutes_give_way_and_are_counted() -> None:
    minutes = Minutes(rows_max=3)
    for tenant in "abcde":
        minutes.arrived(tenant, "", "chat", 1, 1)
        minutes.now_ms += 60_000
    assert [sketch.tenant for sketch in minutes.take(2)] == ["c", "d"]
    assert [sketch.tenant for sketch in minutes.take(2)] == ["e"]
    assert sum(minutes.dropped) == 2


def test_names_beyond_a_minutes_rows_count_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketches, "_ROWS_MAX", 2)
    minutes = Minutes()
    for tenant in "abcd":
        minutes.arrived(tenant, "", "chat", 1, 1)
    minutes.arrived("a", "", "chat", 1, 1)
    found = minutes.take(10, all_of_them=True)
    assert [(sketch.tenant, sketch.pool, sketch.arrivals) for sketch in found] == [
        ("a", "chat", 2),
        ("b", "chat", 1),
        ("unknown", "unknown", 2),
    ]


async def test_a_request_that_its_quota_refuses_has_arrived_and_one_without_a_pool_has_not(
    gateway: RunningGateway,
) -> None:
    await gateway.publish(changed(gateway.control.content, tenants__beta={"rpm_limit": 1}))
    assert await gateway.call_status(chat(max_tokens=30), "beta") == 200
    assert await gateway.call_status(chat(max_tokens=30), "beta") == 429
    assert await gateway.call_status(chat(model="none"), "beta") == 404
    await asyncio.to_thread(gateway.process.stop)
    # Several where a minute ended meanwhile.
    told = gateway.control.sketches
    assert {sketch["tenant"] for sketch in told} == {"beta"}
    assert sum(sketch.get("arrivals", 0) for sketch in told) == 2
    assert added(*(sketch.get("max_tokens", []) for sketch in told)) == {30: 2}
    assert sum(added(*(sketch.get("prompt_tokens", []) for sketch in told)).values()) == 2
    assert added(*(sketch.get("output_tokens", []) for sketch in told)) == {2: 1}
