"""Contents of files in a bucket of an S3-compatible store: one object an id.

Memory holds a part of an upload, and a stretch of what is read, whatever the size of the object. A store that is away,
slow or refuses is an OSError that names bucket and reason, never a key.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, BinaryIO, NamedTuple, cast

from controlplane.batches import settings_rows as rows
from controlplane.batches.store import Store, is_id
from controlplane.core.kept import CannotStart

try:
    import boto3.session
    from boto3.exceptions import Boto3Error
    from boto3.s3.transfer import TransferConfig
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError
except ImportError as error:
    raise CannotStart(
        f"HEADWORKS_BATCH_S3_BUCKET is given, and {error.name} is not installed: install headworks[server,s3]"
    ) from error

# S3 takes parts from 5 MiB, and 10,000 of one object.
PART_BYTES = 16 * 2**20
# What is fetched at once where something is read.
STRETCH_BYTES = 2**20
_CONNECT_SECONDS, _READ_SECONDS, _TRIES = 5, 20, 3
_NOT_THERE = frozenset({"NoSuchKey", "NoSuchUpload"})


class Place(NamedTuple):
    """`endpoint_url` and `region` empty: AWS' own. `access_key` empty: credentials where AWS' clients look for them."""

    bucket: str
    endpoint_url: str = ""
    region: str = ""
    access_key: str = ""
    secret_key: str = ""


def bucket_of_settings() -> Bucket:
    """Raises CannotStart where one half of the key is missing."""
    access_key, secret_key = rows.S3_ACCESS_KEY.read(), rows.S3_SECRET_KEY.read()
    if bool(access_key) != bool(secret_key):
        raise CannotStart("give HEADWORKS_BATCH_S3_ACCESS_KEY and HEADWORKS_BATCH_S3_SECRET_KEY both, or neither")
    place = (rows.S3_BUCKET.read(), rows.S3_ENDPOINT_URL.read(), rows.S3_REGION.read(), access_key, secret_key)
    return Bucket(Place(*place))


class Bucket(Store):
    """Other objects of the bucket are left alone."""

    def __init__(self, place: Place) -> None:
        self._bucket, self._where = place.bucket, place.endpoint_url or "AWS"
        self._client = _client(place)

    def put(self, file_id: str, parts: Iterable[bytes]) -> int:
        source = _Parts(parts)
        # In this thread, a part after another: the memory of one part, and the parts' own errors as they are.
        transfer = TransferConfig(multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES, use_threads=False)
        with self._named_trouble():
            self._client.upload_fileobj(io.BufferedReader(source), self._bucket, file_id, Config=transfer)
        return source.size_bytes

    def open(self, file_id: str) -> BinaryIO:
        if not is_id(file_id):
            raise FileNotFoundError(file_id)
        with self._named_trouble():
            # Not a HEAD, whose refusals have no body that names them.
            first_byte = self._client.get_object(Bucket=self._bucket, Key=file_id, Range="bytes=0-0")
            first_byte["Body"].close()

        def fetch(first: int, last: int) -> bytes:
            with self._named_trouble():
                # Of another content than the one that was opened, no byte.
                answer = self._client.get_object(
                    Bucket=self._bucket, Key=file_id, Range=f"bytes={first}-{last}", IfMatch=first_byte["ETag"]
                )
                return bytes(answer["Body"].read())

        raw = _Object(int(first_byte["ContentRange"].rpartition("/")[2]), fetch)
        return cast(BinaryIO, io.BufferedReader(raw, STRETCH_BYTES))

    def delete(self, file_id: str) -> None:
        with self._named_trouble():
            self._client.delete_object(Bucket=self._bucket, Key=file_id)

    def old_ids(self, older_than_seconds: float) -> Iterator[str]:
        before = _ago(older_than_seconds)
        for row in self._pages("list_objects_v2", "Contents", Prefix="file-"):
            if row["LastModified"] <= before and is_id(row["Key"]):
                yield row["Key"]

    def drop_halves(self, older_than_seconds: float) -> int:
        before = _ago(older_than_seconds)
        halves = [
            row
            for row in self._pages("list_multipart_uploads", "Uploads", Prefix="file-")
            if row["Initiated"] <= before and is_id(row["Key"])
        ]
        for row in halves:
            with self._named_trouble():
                self._client.abort_multipart_upload(Bucket=self._bucket, Key=row["Key"], UploadId=row["UploadId"])
        return len(halves)

    def _pages(self, call: str, name: str, **asked: str) -> Iterator[dict[str, Any]]:
        with self._named_trouble():
            for page in self._client.get_paginator(call).paginate(Bucket=self._bucket, **asked):
                yield from page.get(name, ())

    @contextmanager
    def _named_trouble(self) -> Iterator[None]:
        try:
            yield
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in _NOT_THERE:
                raise FileNotFoundError(errno.ENOENT, "there is no such object") from error
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", "")
            raise self._trouble(f"{error.operation_name} is refused with {status} {code}") from error
        except (BotoCoreError, Boto3Error) as error:
            raise self._trouble(str(error)) from error

    def _trouble(self, says: str) -> OSError:
        return OSError(errno.EIO, f"the bucket {self._bucket} at {self._where}: {says}")


class _Parts(io.RawIOBase):
    """Bytes that come in parts, as a file that can be read once."""

    def __init__(self, parts: Iterable[bytes]) -> None:
        self._parts, self._rest = iter(parts), memoryview(b"")
        self.size_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            part = next(self._parts, None)
            if part is None:
                return 0
            self._rest = memoryview(part)
        taken = min(len(buffer), len(self._rest))
        buffer[:taken], self._rest = self._rest[:taken], self._rest[taken:]
        self.size_bytes += taken
        return taken


class _Object(io.RawIOBase):
    """An object, fetched stretch by stretch: no connection waits for whoever reads it. `fetch`: first and last byte."""

    def __init__(self, size_bytes: int, fetch: Callable[[int, int], bytes]) -> None:
        self._size, self._fetch, self._at = size_bytes, fetch, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence])
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + min(len(buffer), STRETCH_BYTES), self._size)
        if end <= self._at:
            return 0
        part = self._fetch(self._at, end - 1)
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)


@cache
def _client(place: Place) -> Any:
    """One for all threads, which may share it. Making it takes a while."""
    # Checksums only where S3 itself wants them: many compatible stores do not know the newer ones.
    config = Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        retries={"total_max_attempts": _TRIES, "mode": "standard"},
        s3={"addressing_style": "path" if place.endpoint_url else "auto"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    session = boto3.session.Session()
    return session.client(
        "s3",
        config=config,
        endpoint_url=place.endpoint_url or None,
        region_name=place.region or session.region_name or "us-east-1",
        aws_access_key_id=place.access_key or None,
        aws_secret_access_key=place.secret_key or None,
    )


def _ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)
