"""A small S3 on 127.0.0.1: objects in memory, uploads in parts, pages of lists; every request must be signed.

Signatures are worked out anew from the specification (AWS Signature Version 4), so that a client with another secret,
or none, is refused as a real store refuses it.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

ACCESS_KEY, SECRET_KEY, BUCKET = "AKIDTESTS", "secret-of-tests", "batches"
_RANGE = re.compile(r"bytes=(\d+)-(\d+)")


class Objects:
    """What the store holds. `refuse`: (status, code) that every request is answered with, as long as it is set."""

    def __init__(self) -> None:
        self.address = ""
        self.numbers = itertools.count(1)
        self.empty()

    def empty(self) -> None:
        self.objects: dict[str, tuple[bytes, datetime]] = {}
        self.uploads: dict[str, tuple[str, dict[int, bytes], datetime]] = {}
        self.refuse: tuple[int, str] | None = None
        self.refuse_parts_from = 10_000
        self.calls: list[tuple[str, str]] = []
        self.largest_body = 0
        self.page_size = 1000


@contextmanager
def s3_store() -> Iterator[Objects]:
    held = Objects()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"held": held}))
    held.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield held
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    held: Objects

    def log_message(self, format: str, *args: Any) -> None:
        """Tests are silent."""

    def do(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.url = urlsplit(self.path)
        self.query = dict(parse_qsl(self.url.query, keep_blank_values=True))
        bucket, _, self.key = unquote(self.url.path).lstrip("/").partition("/")
        self.held.calls.append((self.command, self.key))
        self.held.largest_body = max(self.held.largest_body, len(body))
        if (code := self._signature_fault(body)) is not None:
            self._refuse(403, code)
        elif self.held.refuse is not None:
            self._refuse(*self.held.refuse)
        elif bucket != BUCKET:
            self._refuse(404, "NoSuchBucket")
        else:
            getattr(self, f"_{self.command.lower()}")(body)

    do_GET = do_PUT = do_POST = do_DELETE = do

    def _get(self, body: bytes) -> None:
        if not self.key:
            self._list()
            return
        content, at = self.held.objects.get(self.key, (None, None))
        if content is None or at is None:
            self._refuse(404, "NoSuchKey")
            return
        etag = _etag(content)
        if self.headers.get("If-Match", etag) != etag:
            self._refuse(412, "PreconditionFailed")
            return
        headers = {"ETag": etag, "Last-Modified": at.strftime("%a, %d %b %Y %H:%M:%S GMT")}
        if asked := _RANGE.fullmatch(self.headers.get("Range", "")):
            first, last = int(asked[1]), min(int(asked[2]), len(content) - 1)
            headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
            self._answer(206, content[first : last + 1], headers)
        else:
            self._answer(200, content, headers)

    def _put(self, body: bytes) -> None:
        if "uploadId" in self.query:
            number = int(self.query["partNumber"])
            if number >= self.held.refuse_parts_from:
                self._refuse(507, "InsufficientStorage")
                return
            self.held.uploads[self.query["uploadId"]][1][number] = body
        else:
            self.held.objects[self.key] = (body, datetime.now(UTC))
        self._answer(200, b"", {"ETag": _etag(body)})

    def _post(self, body: bytes) -> None:
        if "uploads" in self.query:
            upload = f"upload-{next(self.held.numbers)}"
            self.held.uploads[upload] = (self.key, {}, datetime.now(UTC))
            self._answer(200, _xml("InitiateMultipartUploadResult", UploadId=upload, Key=self.key))
            return
        key, parts, _ = self.held.uploads.pop(self.query["uploadId"])
        numbers = [int(number) for number in re.findall(rb"<PartNumber>(\d+)<", body)]
        whole = b"".join(parts[number] for number in numbers)
        self.held.objects[key] = (whole, datetime.now(UTC))
        self._answer(200, _xml("CompleteMultipartUploadResult", ETag=_etag(whole)))

    def _delete(self, body: bytes) -> None:
        if "uploadId" in self.query:
            self.held.uploads.pop(self.query["uploadId"], None)
        else:
            self.held.objects.pop(self.key, None)
        self._answer(204, b"")

    def _list(self) -> None:
        prefix = self.query.get("prefix", "")
        if "uploads" in self.query:
            rows = [
                _row("Upload", Key=key, UploadId=upload, Initiated=at.isoformat())
                for upload, (key, _, at) in self.held.uploads.items()
                if key.startswith(prefix)
            ]
            self._answer(200, _xml("ListMultipartUploadsResult", "".join(rows), IsTruncated="false"))
            return
        after = self.query.get("continuation-token", "")
        keys = sorted(key for key in self.held.objects if key.startswith(prefix) and key > after)
        some = keys[: self.held.page_size]
        more = {"NextContinuationToken": some[-1]} if len(keys) > len(some) else {}
        rows = [_row("Contents", Key=key, LastModified=self.held.objects[key][1].isoformat()) for key in some]
        self._answer(200, _xml("ListBucketResult", "".join(rows), IsTruncated=str(bool(more)).lower(), **more))

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, _xml("Error", Code=code, Message="as told"))

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _signature_fault(self, body: bytes) -> str | None:
        found = re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d+)/([^/]+)/s3/aws4_request, SignedHeaders=(\S+), Signature=(\w+)",
            self.headers.get("Authorization", ""),
        )
        if found is None:
            return "AccessDenied"
        key, day, region, names, signature = found.groups()
        if key != ACCESS_KEY:
            return "InvalidAccessKeyId"
        digest = hashlib.sha256(body).hexdigest()
        if self.headers["x-amz-content-sha256"] != digest:
            return "XAmzContentSHA256Mismatch"
        query = sorted(parse_qsl(self.url.query, keep_blank_values=True))
        signed = [
            self.command,
            quote(unquote(self.url.path)),
            "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in query),
            *(f"{name}:{' '.join(self.headers[name].split())}" for name in names.split(";")),
            "",
            names,
            digest,
        ]
        scope = f"{day}/{region}/s3/aws4_request"
        request = hashlib.sha256("\n".join(signed).encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{self.headers['x-amz-date']}\n{scope}\n{request}"
        made = f"AWS4{SECRET_KEY}".encode()
        for part in (*scope.split("/"), text):
            made = hmac.digest(made, part.encode(), "sha256")
        return None if hmac.compare_digest(made.hex(), signature) else "SignatureDoesNotMatch"


def _etag(content: bytes) -> str:
    return f'"{hashlib.md5(content).hexdigest()}"'


def _row(name: str, **fields: str) -> str:
    return f"<{name}>" + "".join(f"<{field}>{value}</{field}>" for field, value in fields.items()) + f"</{name}>"


def _xml(name: str, rows: str = "", /, **fields: str) -> bytes:
    inner = "".join(f"<{field}>{value}</{field}>" for field, value in fields.items())
    return f'<?xml version="1.0"?><{name}>{inner}{rows}</{name}>'.encode()
