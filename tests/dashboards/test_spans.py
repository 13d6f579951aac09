from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.asked import Asked
from dashboards.spans import FIRST_SPAN, SPANS, Span

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


@given(st.dictionaries(st.sampled_from(["span", "pool", "node", "else"]), st.text()))
def test_an_address_asks_for_something_whatever_it_says(parameters: dict[str, str]) -> None:
    asked = Asked.of(parameters)
    assert asked.span in SPANS.values()
    assert len(asked.pool) <= 200
    assert len(asked.node) <= 200
    assert "\0" not in asked.pool + asked.node


def test_an_address_chooses_span_pool_and_node() -> None:
    asked = Asked.of({"span": "6h", "pool": "chat", "node": "n-1"})
    assert (asked.span.name, asked.pool, asked.node) == ("6h", "chat", "n-1")
    assert asked.query(after=5) == "span=6h&pool=chat&node=n-1&after=5"
    assert Asked.of({"span": "1y", "pool": ""}) == Asked(FIRST_SPAN)
