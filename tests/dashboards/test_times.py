"""The time that a viewer types: what is refused, by which rule, and what is read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.asked import Asked
from dashboards.times import FIELDS, for_field, kept_days, refusals, sensible

NOW = 1_796_000_000.0
HOUR = 3_600


def at(seconds: float) -> str:
    return str(int(NOW + seconds))


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"from": "", "to": ""},
        {"from": at(-HOUR)},
        {"from": at(-HOUR), "to": at(-60)},
        {"from": at(-HOUR), "to": at(0)},
        {"from": "2026-11-29T12:00"},
        {"from": "2026-11-29T12:00:00+03:00", "to": "2026-11-29 13:00:00"},
        # A span is shown whatever stands beside it.
        {"span": "1h", "from": "soon"},
    ],
)
def test_a_time_that_makes_sense_is_taken(parameters: dict[str, str]) -> None:
    assert refusals(parameters, NOW) == {}
    assert sensible(parameters, NOW) == parameters


@pytest.mark.parametrize(
    ("parameters", "field", "rule"),
    [
        ({"from": "soon"}, "from", "“soon” is no time"),
        ({"from": at(-60), "to": "2026-13-45"}, "to", "is no time"),
        ({"to": at(-60)}, "from", "from when"),
        ({"from": at(HOUR)}, "from", "future"),
        ({"from": at(-60), "to": at(HOUR)}, "to", "future"),
        ({"from": at(-60), "to": at(-60)}, "from", "before the end"),
        ({"from": at(-60), "to": at(-HOUR)}, "from", "before the end"),
        ({"from": at(-16 * 86_400)}, "from", "15 days"),
        ({"from": "nan"}, "from", "is no time"),
        ({"from": "1e999"}, "from", "is no time"),
    ],
)
def test_a_time_without_sense_is_refused_by_field_and_rule(parameters: dict[str, str], field: str, rule: str) -> None:
    refused = refusals(parameters, NOW)
    assert list(refused) == [field]
    assert rule in refused[field]
    assert not set(sensible({**parameters, "pool": "chat"}, NOW)) & set(FIELDS)
    assert sensible({**parameters, "pool": "chat"}, NOW)["pool"] == "chat"


def test_what_an_external_server_keeps_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWORKS_PROMETHEUS_URL", "http://prometheus.example:9090")
    assert kept_days() == 90
    assert refusals({"from": at(-16 * 86_400)}, NOW) == {}


def test_a_moment_stands_in_its_field_in_utc() -> None:
    assert for_field("1764504000") == "2025-11-30T12:00:00"
    assert for_field("2025-11-30T15:00:00+03:00") == "2025-11-30T12:00:00"
    assert for_field("soon") == for_field("") == for_field("1e300") == ""


@given(st.dictionaries(st.sampled_from(("from", "to", "span")), st.text(max_size=30)))
def test_no_text_breaks_what_is_asked(parameters: dict[str, str]) -> None:
    refused: dict[str, Any] = refusals(parameters, NOW)
    assert set(refused) <= set(FIELDS)
    assert Asked.of(sensible(parameters, NOW)).span.seconds > 0
