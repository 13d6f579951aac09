"""Settings of batches: what tenants may leave here, for how long, and where it lies."""

from __future__ import annotations

from pathlib import Path

from controlplane import settings_rows as rows
from wire.settings import Setting, path, whole_number

DIR: Setting[Path | None] = Setting(
    "HEADWORKS_BATCH_DIR",
    None,
    "Folder of the files of batches, which all web processes and workers must share. Empty: `batches` in the data "
    "directory.",
    path,
)
FILE_MAX_BYTES = Setting(
    "HEADWORKS_BATCH_FILE_MAX_BYTES",
    209_715_200,
    "Largest file that a tenant may upload; OpenAI takes 200 MB for a batch.",
    whole_number(1024, 1 << 40),
)
TENANT_MAX_BYTES = Setting(
    "HEADWORKS_BATCH_TENANT_MAX_BYTES",
    2_147_483_648,
    "What the files of one tenant may have together, those that its batches have written included.",
    whole_number(1024, 1 << 50),
)
LINES_MAX = Setting(
    "HEADWORKS_BATCH_LINES_MAX", 50_000, "Lines of one batch, as OpenAI bounds them.", whole_number(1, 10_000_000)
)
LINE_MAX_BYTES = Setting(
    "HEADWORKS_BATCH_LINE_MAX_BYTES",
    1_048_576,
    "A longer line fails by itself. No more than HEADWORKS_GATEWAY_MAX_BODY_BYTES is of use.",
    whole_number(1024, 1 << 30),
)
RESULT_MAX_BYTES = Setting(
    "HEADWORKS_BATCH_RESULT_MAX_BYTES",
    67_108_864,
    "Results that a gateway may hand over in one call. One answer that is larger fails its line.",
    whole_number(1_048_576, 1 << 30),
)
OPEN_MAX = Setting(
    "HEADWORKS_BATCH_OPEN_MAX",
    20,
    "Batches of one tenant that have not ended; the next one is refused until one has.",
    whole_number(1, 100_000),
)
WINDOW_MAX_HOURS = Setting(
    "HEADWORKS_BATCH_WINDOW_MAX_HOURS", 168, "The longest completion window of a batch.", whole_number(1, 24 * 90)
)
FILES_KEEP_DAYS = Setting(
    "HEADWORKS_BATCH_FILES_KEEP_DAYS",
    30,
    "A file expires so long after it was made, unless its maker chose less; not while a batch reads it. Batches that "
    "ended are forgotten after twice the time.",
    whole_number(1, 3650),
)
LEASE_SECONDS = Setting(
    "HEADWORKS_BATCH_LEASE_SECONDS",
    60,
    "A line whose gateway has not been heard of for so long is given to another one.",
    whole_number(2, 3600),
)


def folder() -> Path:
    return DIR.read() or rows.DATA_DIR.read() / "batches"


SETTINGS: tuple[Setting[object], ...] = tuple(value for value in dict(globals()).values() if isinstance(value, Setting))
