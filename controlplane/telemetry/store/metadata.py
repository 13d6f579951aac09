"""What the metrics of each family are, as their writers said last."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from controlplane.telemetry.store.database import connect, transaction
from wire.remote_write import Metadata

# Each has three texts of at most HEADWORKS_METRICS_LABEL_VALUE_MAX_CHARACTERS; a fleet has some 2,000 families. The one
# that was told of longest ago goes first.
FAMILIES_MAX = 20_000


def keep(path: Path, metadata: Sequence[Metadata], most: int = FAMILIES_MAX) -> None:
    """Keep what is said of each family in the place of what was said before. Raises StoreUnavailable."""
    with closing(connect(path, writing=True)) as connection, transaction(connection):
        connection.executemany(
            "INSERT OR REPLACE INTO metadata (family, kind, help, unit) VALUES (?, ?, ?, ?)", metadata
        )
        connection.execute(
            "DELETE FROM metadata WHERE number <= (SELECT number FROM metadata ORDER BY number DESC LIMIT 1 OFFSET ?)",
            (most,),
        )


def kept(path: Path) -> list[Metadata]:
    """All that is kept. Raises StoreUnavailable."""
    with closing(connect(path, writing=False)) as connection, transaction(connection, writing=False):
        return [Metadata(*row) for row in connection.execute("SELECT family, kind, help, unit FROM metadata")]
