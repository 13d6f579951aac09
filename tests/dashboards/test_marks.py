"""Marks in the reader's words, read once for all viewers, and told by a stream once each."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from django.test import RequestFactory
from django.utils import translation

from controlplane.web.shown import marks as read_marks
from controlplane.web.shown.marks import CORDON, INCIDENT, REVISION, ROLLOUT, Mark, Marks
from dashboards import asked, marks
from dashboards.asked import Asked
from dashboards.marks import LATE_MS, STEP_MS, News, told
from dashboards.shared import Shared

NOW_MS = 1_764_504_000_000
ALL = [
    Mark(
        "revision-7", NOW_MS, REVISION, "published", "7", "/revisions/7/", "user", "vera", "more room",
        {"noun": "tenant", "key": "acme", "changes": 3},
    ),
    Mark("revision-8", NOW_MS, REVISION, "rolled_back", "8", "/revisions/8/", about={"noun": None, "changes": 0}),
    Mark("cordon-1", NOW_MS, CORDON, "cordoned", "n-1", "/fleet/n-1/", "token", "ada/ci", labels={"node": ("n-1",)}),
    Mark("cordon-2", NOW_MS, CORDON, "uncordoned", "n-1", "/fleet/n-1/", labels={"node": ("n-1",)}),
    Mark("incident-3-began", NOW_MS, INCIDENT, "began", "XID 79", "/incidents/3/"),
    Mark("incident-3-resolved", NOW_MS, INCIDENT, "resolved", "XID 79", "/incidents/3/"),
    Mark(
        "step-4-begun", NOW_MS, ROLLOUT, "begun", "chat → chat-2", "/rollouts/1/", "user", "vera",
        about={"index": 2, "step": "shift"},
    ),
    Mark("step-4-failed", NOW_MS, ROLLOUT, "failed", "chat", "/rollouts/1/", about={"index": 2, "step": "shift"}),
]  # fmt: skip


def test_every_kind_and_state_has_a_shape_of_its_own_and_a_word() -> None:
    found = [told(mark) for mark in ALL]
    assert len({mark["shape"] for mark in found}) == len(ALL)
    assert [mark["head"] for mark in found] == [
        "rev. 7", "rollback", "cordon", "uncordon", "incident", "resolved", "step 2", "failed",
    ]  # fmt: skip
    assert {kind for kind, _shape, _label in marks.KINDS} == {mark.kind for mark in ALL} == set(read_marks.KINDS)


def test_a_mark_says_what_happened_and_who_did_it() -> None:
    revision, rollback, cordon, *_others = (told(mark) for mark in ALL)
    assert (revision["says"], revision["who"], revision["why"]) == (
        "Revision 7: tenant acme and 2 more", "vera", "more room",
    )  # fmt: skip
    assert (rollback["says"], rollback["who"]) == ("Revision 8, a rollback", "")
    assert (cordon["says"], cordon["who"]) == ("n-1 cordoned", "ada/ci (token)")
    assert told(ALL[6])["says"] == "Rollout of chat → chat-2, step 2: Move traffic"


def test_names_are_told_as_they_are() -> None:
    odd = '<script>"100%(s)s" üçgen'
    assert told(Mark("1", 0, CORDON, "cordoned", odd, "/"))["says"] == f"{odd} cordoned"


def test_marks_are_told_in_the_readers_language() -> None:
    with translation.override("tr"):
        assert told(ALL[4])["head"] == "olay"
        title = "Pool chat: no engine answers"
        incident = told(Mark("1", 0, INCIDENT, "began", title, "/incidents/3/"))
        failed = told(replace(ALL[7], why="no engine of the new side takes work any more"))
        assert incident["says"] == "Olay: chat havuzu: hiçbir motor yanıt vermiyor"
        assert failed["why"] == "yeni tarafın hiçbir motoru artık iş almıyor"


class Database:
    """What `controlplane.web.shown.marks` reads, and how often it was asked."""

    def __init__(self) -> None:
        self.found: list[Mark] = []
        self.asked: list[tuple[int, int]] = []
        self.cut: frozenset[str] = frozenset()

    def read(self, first_ms: int, last_ms: int) -> Marks:
        self.asked.append((first_ms, last_ms))
        return Marks([mark for mark in self.found if first_ms <= mark.at_ms <= last_ms], self.cut)


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Database:
    database = Database()
    monkeypatch.setattr(read_marks, "read", database.read)
    monkeypatch.setattr(marks, "_shared", Shared(16))
    for module in (marks, asked):
        monkeypatch.setattr(module, "now_ms", lambda: NOW_MS)
    return database


def ids(event: bytes) -> list[str]:
    if not event:
        return []
    head, _, data = event.decode().partition("\ndata: ")
    assert head == "event: marks"
    return [mark["id"] for mark in json.loads(data)]


def test_a_stream_tells_each_mark_once_also_one_that_was_written_late(database: Database) -> None:
    news = News({}, "en")
    database.found = [Mark("a", NOW_MS - 1_000, REVISION, "rolled_back", "1", "/", about={"noun": None})]
    assert ids(news.event(NOW_MS, NOW_MS)) == ["a"]
    later_ms = NOW_MS + STEP_MS
    assert ids(news.event(NOW_MS, later_ms)) == []
    database.found.append(Mark("late", later_ms - LATE_MS + 2 * STEP_MS, INCIDENT, "began", "XID", "/"))
    assert ids(news.event(later_ms, later_ms + STEP_MS)) == ["late"]


def test_a_browser_that_was_away_for_long_is_told_all_since(database: Database) -> None:
    database.found = [Mark("old", NOW_MS - 3 * LATE_MS, INCIDENT, "began", "XID", "/")]
    assert ids(News({}, "en").event(NOW_MS - 4 * LATE_MS, NOW_MS)) == ["old"]


def test_a_stream_tells_no_marks_of_another_node(database: Database) -> None:
    database.found = list(ALL)
    assert "cordon-1" not in ids(News({"node": "n-2"}, "en").event(NOW_MS, NOW_MS))
    assert "cordon-1" in ids(News({"node": "n-1"}, "en").event(NOW_MS, NOW_MS))


def test_fifty_streams_cost_one_look_every_few_seconds(database: Database) -> None:
    viewers = [News({}, language) for language in ("en", "tr") * 25]
    for moment_ms in (NOW_MS, NOW_MS + STEP_MS - 1, NOW_MS + STEP_MS):
        for news in viewers:
            if news.due(moment_ms):
                news.event(NOW_MS, moment_ms)
    assert len(database.asked) == 2


def test_a_page_has_the_marks_of_its_time_and_the_call_for_them(database: Database, rf: RequestFactory) -> None:
    database.found, database.cut = list(ALL), frozenset({REVISION})
    shown: Any = marks.shown(Asked.of({"span": "1h", "node": "n-2"}), rf.get("/dashboards/"))
    assert {mark["id"] for mark in shown["found"]} == {mark.id for mark in ALL} - {"cordon-1", "cordon-2"}
    assert shown["cut"] == "Of Revisions, the newest 500 are marked."
    assert "/api/v1/marks?from=" in shown["curl"]
    assert "node=n-2" in shown["curl"]
