"""What the lab takes as goodput before a pathology, and with its lever."""

from __future__ import annotations

import time

import pytest

from bench.support.lab.clients import Clients, Ended
from bench.support.lab.goodput import ENDED_SECONDS, Goodput
from simulator.tokenizer import Words, train_tokenizer


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, to be moved."""
    at = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: at[0])
    return at


@pytest.fixture
def clients(now: list[float]) -> Clients:
    """Of two answers a second one is good, and both from 1,200 on; a stranger's do not count."""
    clients = Clients("http://127.0.0.1:1", {}, Words(train_tokenizer()))
    for second in range(1000, 1400):
        clients.ended.append(Ended(second, "support", "good"))
        clients.ended.append(Ended(second, "support", "late" if second < 1200 else "good"))
        clients.ended.append(Ended(second, "noisy", "good"))
    return clients


def test_a_single_time_has_to_be_as_long_as_a_measurement_and_its_end(clients: Clients, now: list[float]) -> None:
    goodput = Goodput(clients, 30.0)
    goodput.well()
    assert goodput.lacking_seconds == 30 + ENDED_SECONDS
    now[0] += 30 + ENDED_SECONDS
    assert goodput.lacking_seconds == 0
    goodput.wrong()
    assert goodput.before() == 0.5


def test_times_that_were_well_are_put_together_the_latest_first(clients: Clients, now: list[float]) -> None:
    goodput = Goodput(clients, 30.0)
    goodput.well()
    now[0] = 1100.0
    goodput.wrong()
    now[0] = 1200.0
    goodput.well()
    # Some of it is to be new.
    assert goodput.lacking_seconds > ENDED_SECONDS
    now[0] += 15 + ENDED_SECONDS
    assert goodput.lacking_seconds == 0
    goodput.wrong()
    # Fifteen seconds in which all is good, and as many in which half of it is.
    assert goodput.before() == pytest.approx(0.75, abs=0.05)


def test_what_was_sent_just_before_something_went_wrong_counts_for_nothing(clients: Clients, now: list[float]) -> None:
    goodput = Goodput(clients, 30.0)
    goodput.well()
    now[0] += ENDED_SECONDS / 2
    goodput.wrong()
    assert goodput.before() == 0.0
    assert goodput.lacking_seconds > 0


def test_a_measurement_has_its_own_time(clients: Clients, now: list[float]) -> None:
    goodput = Goodput(clients, 30.0)
    now[0] = 1300.0
    assert goodput.since(1250.0) == 1.0
    assert goodput.lately(1e9) == 1.0
    assert goodput.lately(0.0) == 0.0
    assert Goodput(clients, 0.0).since(1250.0) == 0.0
