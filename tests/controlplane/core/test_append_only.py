from __future__ import annotations

import pytest
from django.db import IntegrityError, connection, transaction

from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.models import AuditEntry

TABLE = "core_auditentry"
on_sqlite = pytest.mark.skipif(connection.vendor != "sqlite", reason="SQLite's own words")
on_postgresql = pytest.mark.skipif(connection.vendor != "postgresql", reason="PostgreSQL's own words")


@pytest.fixture
def entry(db: None) -> AuditEntry:
    with unit_of_work(SYSTEM, "a test") as unit:
        unit.record("tenant", "acme", None, {"name": "acme", "weight": 1})
    return AuditEntry.objects.get()


def run(statement: str) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)


def stored() -> list[tuple[object, ...]]:
    return list(AuditEntry.objects.values_list())


@pytest.mark.parametrize("column", [field.column for field in AuditEntry._meta.fields if field.column != "revision"])
def test_sql_changes_no_column_of_an_entry(entry, column):
    before = stored()
    other = {
        "touches_config": "NOT touches_config",
        "at": "'2001-01-01 00:00:00+00:00'",
        "id": "id + 1",
        "change_id": "'00000000000000000000000000000000'",
        "before": "'{}'",
        "after": "'{}'",
    }.get(column, "'other'")
    for with_revision in ("", ", revision = 7"):
        with pytest.raises(IntegrityError, match="never changed"):
            run(f'UPDATE {TABLE} SET "{column}" = {other}{with_revision}')
    assert stored() == before


@pytest.mark.parametrize("statement", [f"DELETE FROM {TABLE}", f"DELETE FROM {TABLE} WHERE id > 0"])
def test_sql_removes_no_entry(entry, statement):
    with pytest.raises(IntegrityError, match="never changed or removed"):
        run(statement)
    assert AuditEntry.objects.get() == entry


def test_a_revision_is_filled_in_once(entry):
    assert AuditEntry.objects.update(revision=3) == 1
    for again in ("4", "3", "NULL"):
        with pytest.raises(IntegrityError, match="never changed"):
            run(f"UPDATE {TABLE} SET revision = {again}")
    assert AuditEntry.objects.get().revision == 3


@on_sqlite
@pytest.mark.parametrize("words", ["INSERT OR REPLACE", "REPLACE", "INSERT OR IGNORE"])
def test_no_entry_takes_the_place_of_another(entry, words):
    with pytest.raises(IntegrityError, match="never changed"):
        run(f"{words} INTO {TABLE} SELECT * FROM {TABLE}")
    assert AuditEntry.objects.get().reason == "a test"


@on_postgresql
def test_the_table_is_not_emptied_at_once(entry):
    with pytest.raises(IntegrityError, match="never changed"):
        run(f"TRUNCATE {TABLE}")
    assert AuditEntry.objects.get() == entry
