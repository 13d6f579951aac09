"""The only writer of files: rows here, contents in the store.

A content is stored before its row is, and deleted after it, so that a kill leaves at most a content that nobody
names, which `prune` finds.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import islice

from django.db import transaction
from django.db.models import Q, Sum

from controlplane.batches import settings_rows as rows
from controlplane.batches.models import OPEN, Batch, File, Purpose
from controlplane.batches.refusals import bad_upload, files_full, in_use, no_file, too_large
from controlplane.batches.store import Store, new_id
from wire.canonical import Document

log = logging.getLogger(__name__)

FILENAME_MAX_CHARACTERS = 255
EXPIRES_AT_LEAST_SECONDS = 3600
# Nobody is about to name a content that is so old.
_ORPHAN_SECONDS = 24 * 3600.0
_PRUNED_AT_ONCE = 1000


def upload(
    store: Store,
    tenant: str,
    filename: str,
    size_bytes: int,
    parts: Iterable[bytes],
    now: datetime,
    expires_seconds: int | None = None,
) -> File:
    """Keep what a tenant sends for a batch. Raises Refused, OSError."""
    if size_bytes == 0:
        raise bad_upload("the file is empty; give one request a line")
    if size_bytes > rows.FILE_MAX_BYTES.read():
        raise too_large(rows.FILE_MAX_BYTES.read())
    _need_room(tenant, size_bytes)
    file_id = new_id()
    size_bytes = store.put(file_id, parts)
    try:
        with transaction.atomic():
            # Others may have come meanwhile.
            _need_room(tenant, size_bytes)
            return File.objects.create(
                id=file_id,
                tenant=tenant,
                purpose=Purpose.BATCH,
                filename=filename[:FILENAME_MAX_CHARACTERS],
                size_bytes=size_bytes,
                created_at=now,
                expires_at=expires_at(now, expires_seconds),
            )
    except BaseException:
        _drop(store, file_id)
        raise


def expires_at(now: datetime, seconds: int | None) -> datetime:
    longest = timedelta(days=rows.FILES_KEEP_DAYS.read())
    return now + (longest if seconds is None else min(longest, timedelta(seconds=seconds)))


def get(tenant: str, file_id: str) -> File:
    file = File.objects.filter(pk=file_id, tenant=tenant).first()
    if file is None:
        raise no_file(file_id)
    return file


def page(tenant: str, *, purpose: str, limit: int, after: str, ascending: bool) -> tuple[list[File], bool]:
    """By age, newest first unless `ascending`, those beyond `after`; and whether there are more. Raises NotFound."""
    found = File.objects.filter(tenant=tenant)
    if purpose:
        found = found.filter(purpose=purpose)
    if after:
        last = get(tenant, after)
        side = "gt" if ascending else "lt"
        found = found.filter(
            Q(**{f"created_at__{side}": last.created_at}) | Q(created_at=last.created_at, **{f"pk__{side}": last.pk})
        )
    order = ("created_at", "pk") if ascending else ("-created_at", "-pk")
    some = list(found.order_by(*order)[: limit + 1])
    return some[:limit], len(some) > limit


def delete(store: Store, tenant: str, file_id: str) -> None:
    """Raises NotFound, Conflict while a batch reads it."""
    with transaction.atomic():
        file = get(tenant, file_id)
        reader = Batch.objects.filter(input_file_id=file_id, status__in=OPEN).first()
        if reader is not None:
            raise in_use(file_id, reader.pk)
        file.delete()
    _drop(store, file_id)


def describe(file: File) -> Document:
    """OpenAI's file object."""
    return {
        "id": file.pk,
        "object": "file",
        "bytes": file.size_bytes,
        "created_at": int(file.created_at.timestamp()),
        "expires_at": int(file.expires_at.timestamp()),
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
    }


def prune(store: Store, now: datetime) -> int:
    """Forget files that have expired, and contents that no row names; answers how many."""
    read = Batch.objects.filter(status__in=OPEN).values("input_file_id")
    expired = list(
        File.objects.filter(expires_at__lte=now).exclude(pk__in=read).values_list("pk", flat=True)[:_PRUNED_AT_ONCE]
    )
    File.objects.filter(pk__in=expired).delete()
    for file_id in expired:
        _drop(store, file_id)
    return len(expired) + _prune_orphans(store)


def _prune_orphans(store: Store) -> int:
    gone, old = 0, store.old_ids(_ORPHAN_SECONDS)
    while ids := list(islice(old, _PRUNED_AT_ONCE)):
        named = set(File.objects.filter(pk__in=ids).values_list("pk", flat=True))
        for file_id in ids:
            if file_id not in named:
                store.delete(file_id)
                gone += 1
    return gone + store.drop_halves(_ORPHAN_SECONDS)


def _drop(store: Store, file_id: str) -> None:
    """A content that nobody names any more: `prune` finds what cannot be deleted now."""
    try:
        store.delete(file_id)
    except OSError as error:
        log.warning("%s is left until it can be deleted: %s", file_id, error)


def _need_room(tenant: str, size_bytes: int) -> None:
    most = rows.TENANT_MAX_BYTES.read()
    has = File.objects.filter(tenant=tenant).aggregate(has=Sum("size_bytes"))["has"] or 0
    if has + size_bytes > most:
        raise files_full(has, most)
