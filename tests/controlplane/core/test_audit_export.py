from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.http import StreamingHttpResponse

from controlplane.core import audit_export
from controlplane.core.audit_export import COLUMNS, PAGE_ENTRIES
from controlplane.core.changes import SYSTEM, unit_of_work
from tests.controlplane.conftest import Rest

RISKY = ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx"]


def parts(answer: StreamingHttpResponse) -> list[bytes]:
    content = answer.streaming_content
    assert isinstance(content, AsyncIterator)

    async def collect() -> list[bytes]:
        return [part async for part in content]

    assert answer.status_code == 200
    return async_to_sync(collect)()


def lines(viewer: Rest, query: str = "") -> list[dict[str, Any]]:
    return [json.loads(line) for line in b"".join(parts(viewer.get(f"/audit/export?{query}"))).splitlines()]


def table(viewer: Rest, query: str = "") -> list[dict[str, str]]:
    text = b"".join(parts(viewer.get(f"/audit/export?format=csv&{query}"))).decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def note(*keys: str, reason: str = "a test") -> None:
    with unit_of_work(SYSTEM, reason) as unit:
        for key in keys:
            unit.record("tenant", key, None, {"name": key, "weight": 1})


def test_each_line_is_an_entry_as_the_list_shows_it_oldest_first(viewer):
    note("acme", "globex")
    assert lines(viewer) == viewer.get("/audit").json()["items"][::-1]


def test_a_table_has_a_column_for_each_field_and_rows_as_json(viewer):
    note("acme", 'naïve, "quoted"\nname')
    found, listed = table(viewer), viewer.get("/audit").json()["items"][::-1]
    assert [row["key"] for row in found] == [entry["key"] for entry in listed]
    assert tuple(found[0]) == COLUMNS == tuple(listed[0])
    assert json.loads(found[1]["after"]) == listed[1]["after"]
    assert (found[0]["before"], found[0]["revision"], found[0]["id"]) == ("", "", str(listed[0]["id"]))


def test_no_cell_is_a_formula(viewer):
    note(*RISKY, reason="=cmd()")
    found = table(viewer)
    assert [row["key"] for row in found] == [f"'{text}" for text in RISKY]
    assert {row["reason"] for row in found} == {"'=cmd()"}
    # What a program reads is as it was.
    assert [(entry["key"], entry["reason"]) for entry in lines(viewer)] == [(text, "=cmd()") for text in RISKY]


def test_it_comes_in_pages_and_each_entry_once(viewer, django_assert_num_queries):
    note(*(f"t-{number}" for number in range(2 * PAGE_ENTRIES + 1)))
    answer = viewer.get("/audit/export")
    with django_assert_num_queries(4):
        found = parts(answer)
    assert [part.count(b"\n") for part in found] == [PAGE_ENTRIES, PAGE_ENTRIES, 1]
    keys = [json.loads(line)["key"] for line in b"".join(found).splitlines()]
    assert keys == [f"t-{number}" for number in range(2 * PAGE_ENTRIES + 1)]


def test_it_is_searched_as_the_list_is(viewer):
    note("acme", reason="one")
    note("acme", "globex", reason="two")
    assert [entry["reason"] for entry in lines(viewer, "key=acme&reason=tw")] == ["two"]
    assert [row["key"] for row in table(viewer, "reason=two")] == ["acme", "globex"]
    assert lines(viewer, "key=nobody") == table(viewer, "key=nobody") == []


def test_a_follower_fetches_what_came_since(viewer):
    note("acme", "globex")
    last = lines(viewer)[-1]["id"]
    assert lines(viewer, f"after={last}") == []
    note("initech")
    assert [entry["key"] for entry in lines(viewer, f"after={last}")] == ["initech"]


@pytest.mark.parametrize("form", audit_export.CONTENT_TYPES)
def test_it_is_a_file_that_no_cache_keeps(viewer, form):
    answer = viewer.get(f"/audit/export?format={form}")
    assert answer["Content-Type"] == f"{audit_export.CONTENT_TYPES[form]}; charset=utf-8"
    assert answer["Content-Disposition"] == f'attachment; filename="audit.{form}"'
    assert answer["Cache-Control"] == "no-store"
