"""What must hold before a process of the control plane starts: its database answers, its keys are the right ones."""

from __future__ import annotations

import psycopg
from django.conf import settings
from django.contrib.staticfiles.storage import ManifestStaticFilesStorage
from django.db import Error, connection, transaction
from django.db.migrations.executor import MigrationExecutor

from controlplane import settings_rows as rows
from controlplane.core import kept
from controlplane.core.errors import Conflict
from controlplane.core.kept import CannotStart
from controlplane.core.models import FieldKeyCanary
from controlplane.core.sealed import seal, unseal

_CONNECT_SECONDS = 5
_CANARY = "opened with the key that sealed it"


def reach_database() -> None:
    """Raises CannotStart where the database does not answer. Past the pool, which would try again for a long while."""
    try:
        if connection.vendor == "postgresql":
            parameters = {**connection.get_connection_params(), "connect_timeout": _CONNECT_SECONDS}
            psycopg.connect(**parameters).close()
        else:
            connection.ensure_connection()
    except (Error, psycopg.Error) as error:
        place = connection.settings_dict
        said = " ".join(str(error).split())
        if connection.vendor == "sqlite":
            raise CannotStart(f"the database {place['NAME']} cannot be opened: {said}") from error
        where = f"{place['HOST'] or 'the local socket'}:{place['PORT'] or 5432}"
        raise CannotStart(f"the database at {where} does not answer: {said}") from error


def require_this_version() -> None:
    """Raises CannotStart where the database lacks a migration of this version."""
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        raise CannotStart("the database is not at this version yet; run `headworks migrate`")


def require_static_files() -> None:
    """Raises CannotStart where this machine lacks what pages load, without which each of them fails."""
    if not (settings.STATIC_ROOT / ManifestStaticFilesStorage.manifest_name).exists():
        raise CannotStart(f"there are no static files in {settings.STATIC_ROOT}; run `headworks migrate` here too")


def settle_keys() -> None:
    """Keep the keys that no setting gives, and see that the field key opens what this database holds.

    A row that was sealed at the first start tells: a field key that was lost or mistaken is found now, not when
    gateways lose the engines' API keys, and none is made in its place. Raises CannotStart, OSError.
    """
    if not rows.SECRET_KEY.read():
        settings.SECRET_KEY = kept.keep(settings.DATA_DIR / "secret-key", settings.SECRET_KEY, rows.long_secret)
    with transaction.atomic():
        if not FieldKeyCanary.objects.exists():
            if not rows.FIELD_KEY.read():
                file = settings.DATA_DIR / "field-key"
                settings.HEADWORKS_FIELD_KEY = kept.keep(file, settings.HEADWORKS_FIELD_KEY, rows.fernet_key)
            FieldKeyCanary.objects.get_or_create(pk=1, defaults={"sealed": seal(_CANARY)})
        canary = FieldKeyCanary.objects.get()
    try:
        unseal(canary.sealed)
    except Conflict as error:
        raise CannotStart(
            "the field key is not the one that this database was begun with, so the engines' API keys in it cannot be "
            f"read: set HEADWORKS_FIELD_KEY to that key, or restore {settings.DATA_DIR / 'field-key'} from your backup"
        ) from error
