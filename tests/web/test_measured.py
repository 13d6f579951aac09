"""Numbers of the metrics store: found by their owners, missing with a reason, and never waited for long."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.telemetry import query
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.store.writer import Owner
from controlplane.web import measured
from controlplane.web.measured import LATE, Board, Latest, Question, fresh, soon
from tests.controlplane.telemetry.filling import store
from tests.services import wait_for
from wire.write_body import STALE, Series

UP = {"up": Question("sum by (pool) (headworks_engine_up)", ("pool",))}


@pytest.fixture(autouse=True)
def own_store(settings: Any, tmp_path: Path) -> Path:
    settings.DATA_DIR = tmp_path
    return store_path()


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A store that answers once this is set."""
    answers = threading.Event()
    monkeypatch.setattr(query, "instant", lambda *_args, **_options: answers.wait(30) and [])
    yield answers
    answers.set()


def put(path: Path, *told: tuple[str, int, float]) -> None:
    """Pool, milliseconds ago, value; two values of one pool are one series."""
    now_ms, series = int(time.time() * 1000), dict[str, list[tuple[int, float]]]()
    for pool, ago_ms, value in told:
        series.setdefault(pool, []).append((now_ms - ago_ms, value))
    labels = {"__name__": "headworks_engine_up", "engine": "a"}
    store(path, [Series({**labels, "pool": pool}, samples) for pool, samples in series.items()], Owner("node", "n"))


def test_values_stand_by_the_labels_that_were_asked_for(own_store: Path) -> None:
    put(own_store, ("chat", 1000, 1.0), ("long", 1000, 2.0))
    for numbers in (Board("test", UP).get(), soon(UP)):
        assert (numbers.of("up", "chat"), numbers.of("up", "long"), numbers.of("up", "none")) == (1.0, 2.0, None)
        assert numbers.of("down", "chat") is None
        assert numbers.missing == ""


def test_what_ended_or_is_old_is_not_of_now(own_store: Path) -> None:
    put(own_store, ("old", 90_000, 1.0), ("ended", 5000, 1.0), ("ended", 1000, STALE), ("now", 1000, 1.0))
    numbers = soon({"up": Question(f"sum by (pool) ({fresh('headworks_engine_up')})", ("pool",))})
    assert numbers.all("up") == {("now",): 1.0}


def test_what_is_no_number_is_not_there(own_store: Path) -> None:
    put(own_store, ("chat", 1000, 0.0))
    numbers = soon({"ratio": Question("headworks_engine_up / headworks_engine_up", ("pool",))})
    assert numbers.all("ratio") == {}


def test_a_query_that_fails_says_why() -> None:
    wrong = {"wrong": Question("sum(", ())}
    assert Board("test", wrong).get().missing
    assert soon(wrong).missing


def test_a_store_that_hangs_is_asked_once_and_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    may_answer, asked = threading.Event(), list[int]()
    board = _counting(may_answer, asked)
    monkeypatch.setattr(measured, "WAIT_SECONDS", 0.05)
    assert [board.get() for _ in range(3)] == [LATE] * 3
    may_answer.set()
    monkeypatch.setattr(measured, "WAIT_SECONDS", 20.0)
    assert board.get() == "answer 1"
    assert len(asked) == 1


def test_an_answer_that_nobody_waited_for_does_not_pass_for_now(monkeypatch: pytest.MonkeyPatch) -> None:
    may_answer, asked = threading.Event(), list[int]()
    board = _counting(may_answer, asked)
    monkeypatch.setattr(measured, "WAIT_SECONDS", 0.05)
    assert board.get() == LATE
    may_answer.set()
    wait_for(lambda: board._asked and board._asked[0].done(), 20, "the late answer")
    later = time.time() + 8 * 3600
    monkeypatch.setattr(measured, "WAIT_SECONDS", 20.0)
    monkeypatch.setattr(time, "time", lambda: later)
    assert board.get() == "answer 2"
    assert asked[1] == int(later * 1000)


def _counting(may_answer: threading.Event, asked: list[int]) -> Latest[str]:
    """Answers with how often it was asked."""

    def read(at_ms: int) -> str:
        asked.append(at_ms)
        may_answer.wait(20)
        return f"answer {len(asked)}"

    return Latest("test", read, str)


def test_a_question_of_one_page_is_not_waited_for_either(hanging: threading.Event) -> None:
    assert soon(UP, 0.05).missing == LATE
