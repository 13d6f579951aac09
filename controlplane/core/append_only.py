"""The database's own guard over the audit: no SQL changes or removes an entry, save to fill in its revision, once.

Whoever owns the table can take the guard off, which shows in the database's schema.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db.backends.base.base import BaseDatabaseWrapper

_TABLE = "core_auditentry"
_SAYS = "audit entries are written once and never changed or removed"
_FILLED_IN_LATER = "revision"


def _sqlite(columns: Sequence[str]) -> list[str]:
    raises = f"SELECT RAISE(ABORT, '{_SAYS}');"
    same = " AND ".join(f'NEW."{column}" IS OLD."{column}"' for column in columns if column != _FILLED_IN_LATER)
    filled_in = f"OLD.{_FILLED_IN_LATER} IS NULL AND NEW.{_FILLED_IN_LATER} IS NOT NULL AND {same}"
    # INSERT OR REPLACE removes the row that is there, and calls no trigger on DELETE.
    exists = f"NEW.id IN (SELECT id FROM {_TABLE})"  # noqa: S608 - a constant
    return [
        f"CREATE TRIGGER audit_keeps_removed BEFORE DELETE ON {_TABLE} BEGIN {raises} END",
        f"CREATE TRIGGER audit_keeps_changed BEFORE UPDATE ON {_TABLE} WHEN NOT ({filled_in}) BEGIN {raises} END",
        f"CREATE TRIGGER audit_keeps_replaced BEFORE INSERT ON {_TABLE} WHEN {exists} BEGIN {raises} END",
    ]


def _postgresql(_columns: Sequence[str]) -> list[str]:
    return [
        f"""
        CREATE OR REPLACE FUNCTION audit_keeps() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF TG_OP = 'UPDATE' AND OLD.{_FILLED_IN_LATER} IS NULL AND NEW.{_FILLED_IN_LATER} IS NOT NULL THEN
                OLD.{_FILLED_IN_LATER} := NEW.{_FILLED_IN_LATER};
                IF OLD IS NOT DISTINCT FROM NEW THEN
                    RETURN NEW;
                END IF;
            END IF;
            RAISE EXCEPTION '{_SAYS}' USING ERRCODE = 'restrict_violation';
        END $$
        """,
        f"CREATE TRIGGER audit_keeps BEFORE UPDATE OR DELETE ON {_TABLE} FOR EACH ROW EXECUTE FUNCTION audit_keeps()",
        f"CREATE TRIGGER audit_keeps_all BEFORE TRUNCATE ON {_TABLE} FOR EACH STATEMENT EXECUTE FUNCTION audit_keeps()",
    ]


_SET = {"sqlite": _sqlite, "postgresql": _postgresql}
_TRIGGERS = {
    "sqlite": ("audit_keeps_removed", "audit_keeps_changed", "audit_keeps_replaced"),
    "postgresql": ("audit_keeps", "audit_keeps_all"),
}


def set_guard(connection: BaseDatabaseWrapper) -> None:
    """Over the table's columns as they are now, so that any migration may call it."""
    with connection.cursor() as cursor:
        described = connection.introspection.get_table_description(cursor, _TABLE)
        for statement in _SET[connection.vendor]([column.name for column in described]):
            cursor.execute(statement)


def take_guard_off(connection: BaseDatabaseWrapper) -> None:
    where = f" ON {_TABLE}" if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        for name in _TRIGGERS[connection.vendor]:
            cursor.execute(f"DROP TRIGGER IF EXISTS {name}{where}")
