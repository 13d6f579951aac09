"""Whose series are: a store in which labels alone said so."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from controlplane.telemetry.store import database
from controlplane.telemetry.store.writer import NotStored, Owner
from tests.controlplane.telemetry.filling import named, store
from wire.write_body import Series

BEFORE = 3
LABELS = {
    "of_node": '{"__name__":"a","node":"n-1"}',
    "of_gateway": '{"__name__":"a","gateway":"gw-1"}',
    "recorded": '{"__name__":"node:a:rate1m","node":"n-1"}',
    "of_nobody": '{"__name__":"a"}',
}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of the version before, with series."""
    path = tmp_path / "metrics.sqlite3"
    with monkeypatch.context() as before:
        before.setattr(database, "_VERSIONS", database._VERSIONS[:BEFORE])
        before.setattr(database, "VERSION", BEFORE)
        with closing(database.connect(path, writing=True)) as connection, database.transaction(connection):
            rows = [(text, 0) for text in LABELS.values()]
            connection.executemany("INSERT INTO series (labels, newest_ms) VALUES (?, ?)", rows)
    return path


def owners(path: Path) -> dict[str, Any]:
    with closing(sqlite3.connect(path)) as connection:
        return dict(connection.execute("SELECT labels, owner FROM series").fetchall())


def test_series_that_are_there_get_the_owner_that_their_labels_tell(path):
    database.connect(path, writing=True).close()
    found = owners(path)
    assert {what: found[text] for what, text in LABELS.items()} == {
        "of_node": "node n-1",
        "of_gateway": "gateway gw-1",
        "recorded": "",
        "of_nobody": "",
    }


def test_they_count_for_their_owner(path):
    node = Owner("node", "n-1")
    store(path, [named("b", [(1, 1.0)])], node, most=2)
    with pytest.raises(NotStored, match="node n-1 would have 3 series; it may have 2"):
        store(path, [named("c", [(1, 1.0)])], node, most=2)


def test_what_is_recorded_about_a_node_does_not_count_for_it(tmp_path):
    path = tmp_path / "metrics.sqlite3"
    about = Series({"__name__": "node:b:rate1m", "node": "n-1"}, [(1, 1.0)])
    store(path, [about], Owner("headworks", "recording"))
    store(path, [named("b", [(1, 1.0)])], Owner("node", "n-1"), most=1)
    assert set(owners(path).values()) == {"headworks recording", "node n-1"}
