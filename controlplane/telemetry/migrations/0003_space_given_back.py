"""SQLite can return free pages to the disk only in a file that is laid out for it, which a VACUUM does once.

It comes with the first tables that grow and shrink; until then the file is small.
"""

import logging

from django.db import OperationalError, migrations

log = logging.getLogger(__name__)


def lay_out(apps, editor):
    connection = editor.connection
    if connection.vendor != "sqlite":
        return
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA auto_vacuum = INCREMENTAL")
        try:
            cursor.execute("VACUUM")
        except OperationalError as error:
            # Nothing depends on it but the size of the file.
            log.warning("free space stays in the database's file, and is used again there: %s", error)


class Migration(migrations.Migration):
    # VACUUM stands outside of every transaction.
    atomic = False
    dependencies = [("telemetry", "0002_decisions")]
    operations = [migrations.RunPython(lay_out, migrations.RunPython.noop)]
