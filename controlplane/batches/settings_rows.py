"""Settings of batches: what tenants may leave here, for how long, and where it lies."""

from __future__ import annotations

import re
from pathlib import Path

from controlplane import settings_rows as rows
from wire.settings import Setting, base_url, path, whole_number

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{2,62}")


def bucket(text: str) -> str:
    if not _BUCKET.fullmatch(text):
        raise ValueError("give the name of a bucket: 3 to 63 letters, digits, dots and hyphens")
    return text


DIR: Setting[Path | None] = Setting(
    "HEADWORKS_BATCH_DIR",
    None,
    "Folder of the files of batches, which all web processes and workers must share. Empty: `batches` in the data "
    "directory.",
    path,
)
S3_BUCKET = Setting(
    "HEADWORKS_BATCH_S3_BUCKET",
    "",
    "Bucket of the files of batches, which then lie in no folder. Needs the extra `s3`.",
    bucket,
)
S3_ENDPOINT_URL = Setting(
    "HEADWORKS_BATCH_S3_ENDPOINT_URL",
    "",
    "Where that bucket is, such as https://minio.example:9000. Empty: at AWS, or as AWS_ENDPOINT_URL_S3 says.",
    base_url,
)
S3_REGION = Setting(
    "HEADWORKS_BATCH_S3_REGION",
    "",
    "The bucket's region. Empty: as AWS_DEFAULT_REGION says, or us-east-1, which stores of one's own mostly take.",
    str,
)
S3_ACCESS_KEY = Setting(
    "HEADWORKS_BATCH_S3_ACCESS_KEY",
    "",
    "Id of the key that opens the bucket. Empty: credentials where AWS' own clients look for them.",
    str,
)
S3_SECRET_KEY = Setting("HEADWORKS_BATCH_S3_SECRET_KEY", "", "The secret of that key.", str, secret=True, in_file=True)
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
