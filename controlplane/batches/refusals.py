"""What a tenant's call is refused with. The gateway tells it under the same name (gateway/refusals.py)."""

from __future__ import annotations

from http import HTTPStatus

from controlplane.core.errors import Conflict, Malformed, NotFound, Refused, TooLarge


class LimitReached(Refused):
    """A tenant has as much as it may; some of it must go first."""

    status, code = HTTPStatus.TOO_MANY_REQUESTS, "limit_reached"


def no_file(file_id: str) -> NotFound:
    return NotFound(f"there is no file {file_id[:64]!r}", code="file_not_found")


def no_batch(batch_id: str) -> NotFound:
    return NotFound(f"there is no batch {batch_id[:64]!r}", code="batch_not_found")


def in_use(file_id: str, batch_id: str) -> Conflict:
    return Conflict(f"{batch_id} still reads {file_id}; cancel it, or wait for its end", code="file_in_use")


def bad_upload(says: str) -> Malformed:
    return Malformed(says, code="bad_upload")


def bad_batch(says: str) -> Malformed:
    return Malformed(says, code="bad_batch")


def too_large(most_bytes: int) -> TooLarge:
    return TooLarge(f"the file may have at most {most_bytes} bytes (HEADWORKS_BATCH_FILE_MAX_BYTES)")


def files_full(has_bytes: int, most_bytes: int) -> LimitReached:
    says = f"your files have {has_bytes} of {most_bytes} bytes (HEADWORKS_BATCH_TENANT_MAX_BYTES); delete some"
    return LimitReached(says, code="batch_files_full")


def too_many_open(most: int) -> LimitReached:
    says = f"{most} of your batches have not ended, which is as many as may (HEADWORKS_BATCH_OPEN_MAX)"
    return LimitReached(says, code="too_many_batches")
