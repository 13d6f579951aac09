"""Sketches as gateways post them, and the summaries that are made of them."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.telemetry.decisions import sketches
from controlplane.telemetry.decisions.models import MinuteSketch
from tests.controlplane.alerts.conftest import target
from tests.controlplane.conftest import Rest
from wire.sketches import BUCKETS, COUNT_MAX, bucket_of

MINUTE = 1_900_000_020_000
SPAN = "since=2030-03-17T17:00:00Z&until=2030-03-17T19:00:00Z"


def counts(*lengths: int) -> list[list[int]]:
    return [[bucket_of(length), lengths.count(length)] for length in sorted(set(lengths))]


def sketch(**changes: Any) -> dict[str, Any]:
    return {
        "minute": MINUTE,
        "tenant": "acme",
        "class": "batch",
        "pool": "chat",
        "arrivals": 3,
        "prompt_tokens": counts(10, 20, 30),
        "max_tokens": counts(16, 16, 16),
        "output_tokens": counts(5),
        **changes,
    }


def post(gateway: Rest, *told: dict[str, Any]) -> None:
    answer = gateway.post("/sketches", list(told))
    assert answer.status_code == 200, answer.content
    assert answer.json() == {"taken": len(told)}


def summary(viewer: Rest, query: str = "") -> list[dict[str, Any]]:
    answer = viewer.get(f"/sketches?{SPAN}{query}")
    assert answer.status_code == 200, answer.content
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


def test_a_span_is_summed_up_over_gateways_and_minutes(gateway: Rest, viewer: Rest) -> None:
    post(gateway, sketch(), sketch(minute=MINUTE + 60_000, arrivals=1, prompt_tokens=counts(31)))
    post(target("gateway", "gw-2"), sketch(arrivals=4))
    (item,) = summary(viewer)
    assert (item["tenant"], item["class"], item["pool"]) == ("acme", "batch", "chat")
    assert (item["arrivals"], item["arrivals_in_busiest_minute"]) == (8, 7)
    assert item["busiest_minute"] == "2030-03-17T17:47:00.000Z"
    assert item["prompt_tokens"] == {"count": 7, "p50": 20, "p90": 31, "p95": 31, "p99": 31}
    assert item["output_tokens"] == {"count": 3, "p50": 5, "p90": 5, "p95": 5, "p99": 5}


def test_a_sketch_counts_once_however_often_it_comes(gateway: Rest, viewer: Rest) -> None:
    post(gateway, sketch())
    post(gateway, sketch(), sketch(minute=MINUTE + 60_000))
    assert [item["arrivals"] for item in summary(viewer)] == [6]


def test_names_that_are_not_configured_are_summed_up_as_unknown(gateway: Rest, viewer: Rest) -> None:
    post(gateway, sketch(tenant="gone"), sketch(tenant="gone-too", pool="gone"), sketch(tenant="gone-as-well"))
    unknown_chat, unknown = summary(viewer)
    assert (unknown_chat["tenant"], unknown_chat["pool"], unknown_chat["arrivals"]) == ("unknown", "chat", 6)
    assert unknown_chat["prompt_tokens"]["count"] == 6
    assert (unknown["pool"], unknown["arrivals"]) == ("unknown", 3)


def test_the_largest_counts_add_up(gateway: Rest, viewer: Rest) -> None:
    most = [[1, COUNT_MAX]] * BUCKETS
    post(gateway, *(sketch(tenant=f"gone-{number}", arrivals=COUNT_MAX, prompt_tokens=most) for number in range(10)))
    (item,) = summary(viewer)
    assert (item["arrivals"], item["prompt_tokens"]["count"]) == (10 * COUNT_MAX, 10 * BUCKETS * COUNT_MAX)


def test_a_summary_is_by_what_is_asked_and_of_whom(gateway: Rest, viewer: Rest) -> None:
    post(gateway, sketch(), sketch(pool="gone"), sketch(**{"class": "gone"}))
    assert [(item["pool"], item["arrivals"]) for item in summary(viewer, "&by=pool")] == [("chat", 6), ("unknown", 3)]
    assert "tenant" not in summary(viewer, "&by=pool")[0]
    assert [item["arrivals"] for item in summary(viewer, "&by=tenant&class=batch")] == [6]
    assert [item["arrivals"] for item in summary(viewer, "&pool=chat&by=pool&by=pool")] == [6]
    assert summary(viewer, "&tenant=other") == []


def test_a_minute_counts_where_it_lies_within_the_span_in_whole(gateway: Rest, viewer: Rest) -> None:
    post(gateway, sketch())
    for span, found in (
        ("since=2030-03-17T17:47:00Z&until=2030-03-17T17:48:00Z", 1),
        ("since=2030-03-17T17:47:00.001Z&until=2030-03-17T17:49:00Z", 0),
        ("since=2030-03-17T17:40:00Z&until=2030-03-17T17:47:59.999Z", 0),
    ):
        assert len(viewer.get(f"/sketches?{span}").json()["items"]) == found, span


def test_without_a_span_it_is_the_last_day(gateway: Rest, viewer: Rest) -> None:
    post(gateway, sketch())
    assert viewer.get("/sketches").json()["items"] == []


@pytest.mark.parametrize(
    "query",
    [
        "since=2030-01-02T00:00:00Z&until=2030-01-01T00:00:00Z",
        "since=2030-01-01T00:00:00Z&until=2030-03-01T00:00:00Z",
        "since=1960-01-01T00:00:00Z&until=1960-01-02T00:00:00Z",
        "since=0001-01-01T00:00:00%2B14:00",
        "until=9999-12-31T23:59:59-14:00&since=9999-01-01T00:00:00Z",
        "by=gateway",
    ],
)
def test_a_span_that_is_none_is_refused(viewer: Rest, query: str) -> None:
    assert viewer.get(f"/sketches?{query}").status_code == 422


def test_a_span_with_too_much_in_it_is_refused_by_name(
    gateway: Rest, viewer: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sketches, "SUMMARY_ROWS_MAX", 1)
    post(gateway, sketch())
    assert len(summary(viewer)) == 1
    post(gateway, sketch(minute=MINUTE + 60_000))
    answer = viewer.get(f"/sketches?{SPAN}")
    assert (answer.status_code, answer.json()["code"]) == (422, "too_many_sketches")


@pytest.mark.parametrize(
    "broken",
    [
        {"minute": MINUTE + 1},
        {"minute": -60_000},
        {"tenant": ""},
        {"arrivals": -1},
        {"arrivals": COUNT_MAX + 1},
        {"prompt_tokens": [[1, COUNT_MAX + 1]]},
        {"prompt_tokens": [[448, 1]]},
        {"prompt_tokens": [[1, 0]]},
        {"prompt_tokens": [[1, 1]] * 449},
        {"prompt_tokens": [[1, 2, 3]]},
    ],
)
def test_a_broken_sketch_is_refused_with_its_body(gateway: Rest, broken: dict[str, Any]) -> None:
    answer = gateway.post("/sketches", [sketch(), sketch(**broken)])
    assert answer.status_code == 422
    assert all(problem["path"].startswith(f"/1/{next(iter(broken))}") for problem in answer.json()["problems"])
    assert not MinuteSketch.objects.exists()


def test_only_a_gateway_posts_sketches(gateway: Rest, admin: Rest) -> None:
    assert target("node", "n1").post("/sketches", [sketch()]).status_code == 403
    assert admin.post("/sketches", [sketch()]).status_code == 401
