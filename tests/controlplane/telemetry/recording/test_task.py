from __future__ import annotations

import threading

from controlplane.celery import app
from controlplane.telemetry import tasks


def test_the_beat_asks_for_the_task_often_enough_for_the_shortest_interval():
    entry = app.conf.beat_schedule["record-series"]
    assert entry["task"] == tasks.record_series.name
    assert entry["schedule"] <= 10


def test_a_worker_evaluates_in_one_thread_at_a_time(monkeypatch):
    begun, may_end = threading.Event(), threading.Event()

    def slow() -> int:
        begun.set()
        assert may_end.wait(10)
        return 3

    monkeypatch.setattr(tasks, "evaluate_due", slow)
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(tasks.record_series()))
    thread.start()
    assert begun.wait(10)
    assert tasks.record_series() == 0
    may_end.set()
    thread.join(10)
    assert answers == [3]
    assert tasks.record_series() == 3
