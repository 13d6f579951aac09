from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.asked import Asked
from dashboards.charts import LAYERS
from dashboards.spans import FIRST_SPAN, SPANS, Span, span_of

spans = st.sampled_from(list(SPANS.values()))
moments_ms = st.integers(10**12, 10**13)


@given(spans, moments_ms)
def test_viewers_of_a_span_share_its_moments(span: Span, now_ms: int) -> None:
    newest_ms = span.newest_ms(now_ms)
    assert newest_ms % span.step_ms == 0
    assert newest_ms <= now_ms - span.settle_ms < newest_ms + span.step_ms
    assert span.newest_ms(span.next_at_ms(now_ms)) == newest_ms + span.step_ms
    assert now_ms < span.next_at_ms(now_ms)


@given(spans, moments_ms)
def test_a_span_has_its_points_from_the_first_to_the_newest(span: Span, now_ms: int) -> None:
    newest_ms = span.newest_ms(now_ms)
    first_ms = span.first_ms(newest_ms)
    assert len(range(first_ms, newest_ms + 1, span.step_ms)) == span.points
    assert newest_ms - first_ms == span.seconds * 1000


@pytest.mark.parametrize("span", SPANS.values(), ids=lambda span: span.name)
def test_a_window_is_longer_than_a_step_so_that_no_sample_falls_between(span: Span) -> None:
    assert span.window_seconds >= 2 * span.step_seconds


def test_what_is_recorded_is_awaited_longer_than_rules_are_delayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWORKS_RECORDING_DELAY_SECONDS", "120")
    assert {name for name, span in SPANS.items() if span.settle_ms > 120_000} == {"24h", "7d"}


@given(st.dictionaries(st.sampled_from(["span", "from", "to", "layer", "pool", "tenant", "node", "else"]), st.text()))
def test_an_address_asks_for_something_whatever_it_says(parameters: dict[str, str]) -> None:
    asked = Asked.of(parameters)
    assert asked.layer in LAYERS
    assert asked.span.points <= 400
    assert all(len(name) <= 200 for name in (asked.pool, asked.tenant, asked.node))
    assert "\0" not in asked.pool + asked.tenant + asked.node


def test_an_address_chooses_span_pool_tenant_and_node() -> None:
    asked = Asked.of({"span": "6h", "pool": "chat", "node": "n-1", "tenant": "acme"})
    assert (asked.span.name, asked.pool, asked.tenant, asked.node) == ("6h", "chat", "acme", "n-1")
    assert asked.query(after=5) == "span=6h&pool=chat&tenant=acme&node=n-1&after=5"
    assert Asked.of({"span": "1y", "pool": ""}) == Asked(FIRST_SPAN)


MOMENT = 1_764_504_000  # 2025-11-30T12:00:00Z


@pytest.mark.parametrize(
    ("first", "last"),
    [
        (str(MOMENT - 1800), str(MOMENT)),
        ("2025-11-30T11:30:00", "2025-11-30T12:00:00"),
        ("2025-11-30T14:30:00+03:00", "2025-11-30T12:00:00Z"),
    ],
)
def test_an_address_names_two_moments_as_seconds_or_as_dates(first: str, last: str) -> None:
    asked = Asked.of({"from": first, "to": last})
    assert (asked.newest_ms, asked.span.first_ms(asked.newest_ms)) == (MOMENT * 1000, (MOMENT - 1800) * 1000)
    assert asked.time == {"from": str(MOMENT - 1800), "to": str(MOMENT)}
    assert Asked.of(asked.time) == asked


@pytest.mark.parametrize(
    ("first", "last"), [("5", "4"), ("soon", "9"), ("-5", "5"), ("nan", "inf"), ("2025-13-45T99:00", ""), ("", "9")]
)
def test_moments_that_make_no_time_are_as_good_as_not_said(first: str, last: str) -> None:
    assert Asked.of({"from": first, "to": last}) == Asked()


def test_a_span_that_is_named_goes_before_moments() -> None:
    assert Asked.of({"span": "1h", "from": "5", "to": "500"}) == Asked(SPANS["1h"])


@given(st.floats(0.001, 10**9))
def test_a_time_between_two_moments_has_steps_like_the_spans_and_is_no_shorter(seconds: float) -> None:
    span = span_of(seconds)
    assert span.points <= 400
    assert span.seconds >= min(seconds, 90 * 86_400)
    assert span.seconds % span.step_seconds == 0
    assert span.window_seconds >= 2 * span.step_seconds
    assert span.is_recorded == (seconds > SPANS["6h"].seconds)


def test_what_will_come_is_not_waited_for() -> None:
    asked = Asked.of({"from": str(time.time() - 600), "to": str(time.time() + 86_400)})
    assert asked.newest_ms <= time.time() * 1000
    assert asked.span.seconds < 900
