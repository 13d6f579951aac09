"""Targets that come and go: their turns are counted, and told."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from controlplane.configs import presence
from controlplane.configs.flapping import FLAPPING_TURNS, WINDOW, is_flapping, noted, turns
from controlplane.configs.heads import Heads
from controlplane.configs.models import TargetState
from tests.controlplane.configs.live import Live
from tests.controlplane.conftest import Rest
from tests.services import wait_for

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@given(st.lists(st.integers(0, 1200), max_size=40).map(sorted))
def test_turns_are_those_within_the_window_and_no_more_than_the_last_are_kept(seconds: list[int]) -> None:
    """`seconds`: when it turned, of the twenty minutes up to now."""
    began = NOW - timedelta(seconds=1200)
    kept: list[int] = []
    for second in seconds:
        kept = noted(kept, began + timedelta(seconds=second))
    assert len(kept) == min(len(seconds), 20)
    within = sum(second >= 600 for second in seconds)
    assert turns(kept, NOW) == min(within, 20)
    assert is_flapping(turns(kept, NOW)) == (within >= 5)


def test_a_clock_that_was_set_back_far_leaves_nothing_to_count() -> None:
    kept = noted(noted([], NOW), NOW + timedelta(seconds=1))
    assert turns(kept, NOW - timedelta(seconds=30)) == 2
    assert turns(kept, NOW - 2 * WINDOW) == 0


def shown(rest: Rest) -> dict[str, tuple[int, bool]]:
    targets = rest.get("/config/convergence").json()["targets"]
    return {target["name"]: (target["turns_10m"], target["flapping"]) for target in targets}


def test_going_between_applying_and_refusing_is_told_and_saying_the_same_again_is_no_turn(
    target_of: Any, newest: Callable[[], Heads], admin: Rest
) -> None:
    target = target_of()
    target_of(name="gw-2")
    head = newest().newest
    assert head is not None
    applied = {"revision": 1, "hash": head.slice("gateway", "gw-1").hash, "applied_at": 1}
    refused = {"revision": 1, "error": [{"path": "/", "rule": "test", "message": "no"}]}
    for body, counted in ((applied, 0), (applied, 0), (refused, 1), (refused, 1), (applied, 2), (refused, 3)):
        assert target.post("/config/ack", body).status_code == 200
        assert shown(admin) == {"gw-1": (counted, False), "gw-2": (0, False)}
    for body in (applied, refused):
        target.post("/config/ack", body)
    assert shown(admin) == {"gw-1": (5, True), "gw-2": (0, False)}


def test_it_is_told_no_longer_once_the_window_has_passed(
    target_of: Any, admin: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = target_of().row
    now = timezone.now()
    for _ in range(FLAPPING_TURNS):
        presence.beat([row.pk], now, came=[row.pk])
    assert shown(admin) == {"gw-1": (5, True)}
    monkeypatch.setattr(timezone, "now", lambda: now + WINDOW + timedelta(seconds=1))
    assert shown(admin) == {"gw-1": (0, False)}


def test_a_stream_that_opens_costs_no_write_more_than_one_that_goes_on(target_of: Any) -> None:
    ids = [target_of(name=f"gw-{i}").row.pk for i in range(30)]
    now = timezone.now()
    presence.beat(ids, now)

    def writes(came: list[int]) -> int:
        with CaptureQueriesContext(
            connection,
        ) as queries:
            presence.beat(ids, now, came)
        return sum(query["sql"].startswith(("UPDATE", "INSERT")) for query in queries)

    assert 0 < writes(ids) <= writes([])
    assert [len(state.turned_at_ms) for state in TargetState.objects.all()] == [1] * 30


def test_a_real_target_that_reconnects_again_and_again_is_flapping(live: Live) -> None:
    steady, flapping = live.enrol("gateway", "steady"), live.enrol("gateway", "flapping")
    stays = steady.stream()

    def told(name: str) -> dict[str, Any]:
        targets = live.rest.get("/config/convergence")["targets"]
        return next(target for target in targets if target["name"] == name)

    for number in range(1, 6):
        stream = flapping.stream()
        wait_for(lambda number=number: told("flapping")["turns_10m"] == number, 10, "its turn")  # type: ignore[misc]
        assert told("flapping")["flapping"] is (number == 5)
        stream.close()
        wait_for(lambda: not told("flapping")["connected"], 10, "the stream's end")
    wait_for(lambda: told("steady")["connected"], 10, "the stream that stays")
    assert (told("steady")["turns_10m"], told("steady")["flapping"]) == (1, False)
    stays.close()
