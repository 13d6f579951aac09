"""OpenAI's `/v1/files` and `/v1/batches`: whose call it is, is found here; what it does, at the control plane."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import NamedTuple

from gateway.admission import find_tenant
from gateway.batches.link import Link, Method, whole
from gateway.exchange import ClientLeft, Exchange
from gateway.metrics import UNKNOWN
from gateway.refusals import Refused, refusing

PATHS = ("/v1/files", "/v1/batches")
_ID = "[A-Za-z0-9_-]{1,64}"
_QUERY_BYTES = 2_000
_JSON = {"Content-Type": "application/json"}
_STAGE = "receive"


class Call(NamedTuple):
    """`upload`: its body goes through as it comes. `content`: its answer does. `to`: the control plane's path."""

    method: str
    pattern: re.Pattern[str]
    to: str
    by: Method
    upload: bool = False
    content: bool = False
    body: bool = False


_CALLS = (
    Call("POST", re.compile("/v1/files"), "/files", "POST", upload=True),
    Call("GET", re.compile("/v1/files"), "/files", "GET"),
    Call("GET", re.compile(f"/v1/files/({_ID})"), "/files/{}", "GET"),
    Call("DELETE", re.compile(f"/v1/files/({_ID})"), "/files/{}/delete", "POST"),
    Call("GET", re.compile(f"/v1/files/({_ID})/content"), "/files/{}/content", "GET", content=True),
    Call("POST", re.compile("/v1/batches"), "/batches", "POST", body=True),
    Call("GET", re.compile("/v1/batches"), "/batches", "GET"),
    Call("GET", re.compile(f"/v1/batches/({_ID})"), "/batches/{}", "GET"),
    Call("POST", re.compile(f"/v1/batches/({_ID})/cancel"), "/batches/{}/cancel", "POST"),
)


def is_call(path: str) -> bool:
    return path.startswith(PATHS) and (
        path in PATHS or path[len("/v1/files")] == "/" or path.startswith("/v1/batches/")
    )


async def answer(x: Exchange, link: Link | None, batch_class: str) -> None:
    """Answer one call of a tenant's, refusals included."""
    try:
        with refusing():
            x.tenant_name, _ = find_tenant(x)
            call, path = _find(x)
            if link is None:
                raise Refused("batches_unavailable", "this gateway follows no control plane", retry_after_seconds=5)
            if call.body:
                need_class(x, batch_class)
            await _pass_on(x, link, call, path)
    except Refused as refused:
        x.gateway.metrics.request(UNKNOWN, x.tenant_name or UNKNOWN, UNKNOWN, "refused", refused.reason)
        x.gateway.decisions.refused(x, _STAGE, refused)
        if not x.headers_sent:
            await x.refuse(refused)
    except ClientLeft:
        pass
    finally:
        x.close()


def need_class(x: Exchange, batch_class: str) -> None:
    """Raises: Refused (`no_batch_class`)."""
    if batch_class not in x.view.snapshot.priority_classes:
        raise Refused("no_batch_class", f"batches run in the priority class {batch_class!r}, which does not exist here")


def _find(x: Exchange) -> tuple[Call, str]:
    path, method = x.scope["path"], x.scope["method"]
    there = [(call, match) for call in _CALLS if (match := call.pattern.fullmatch(path))]
    for call, match in there:
        if call.method == method:
            return call, call.to.format(*match.groups())
    if not there:
        raise Refused("unknown_path", f"there is no {path[:200]!r} here")
    takes = ", ".join(call.method for call, _ in there)
    allow = ((b"allow", takes.encode()),)
    raise Refused("method_not_allowed", f"{path[:200]} takes {takes}", headers=allow)


async def _pass_on(x: Exchange, link: Link, call: Call, path: str) -> None:
    query: bytes = x.scope.get("query_string", b"")
    if len(query) > _QUERY_BYTES:
        raise Refused("bad_batch", f"the query has more than {_QUERY_BYTES} bytes")
    if query and call.by == "GET":
        path += "?" + query.decode("latin-1")
    if call.upload:
        await _upload(x, link, path)
        return
    data = await x.read_body() if call.body else (b"{}" if call.by == "POST" else None)
    async with link.call(call.by, path, tenant=x.tenant_name, data=data, headers=_JSON if data else None) as response:
        if call.content:
            await _send_content(x, response.content.iter_chunked(256 * 1024), response.content_length)
            return
        body = await whole(response)
    await x.answer_json(200, body)


async def _upload(x: Exchange, link: Link, path: str) -> None:
    kind = x.headers.get(b"content-type", b"").decode("latin-1")
    if not kind.lower().startswith("multipart/form-data"):
        raise Refused("bad_upload", "send multipart/form-data with the fields `purpose` and `file`")
    length = x.headers.get(b"content-length", b"")
    if not length.isdigit():
        raise Refused("bad_upload", "send the form with its Content-Length")
    broken: list[Exception] = []

    async def parts() -> AsyncIterator[bytes]:
        try:
            async for part in x.body_parts():
                yield part
        except (Refused, ClientLeft) as error:
            # To the HTTP client a body that breaks off is trouble with its connection.
            broken.append(error)
            raise

    try:
        headers = {"Content-Type": kind, "Content-Length": length.decode()}
        async with link.call("POST", path, tenant=x.tenant_name, data=parts(), headers=headers) as response:
            body = await whole(response)
    except Refused:
        if broken:
            raise broken[0] from None
        raise
    await x.answer_json(200, body)


async def _send_content(x: Exchange, parts: AsyncIterator[bytes], size_bytes: int | None) -> None:
    """Nobody watches the client: of a request without a body the server tells its end before the answer's."""
    headers = [(b"content-type", b"application/octet-stream"), *x.own_headers()]
    if size_bytes is not None:
        headers.append((b"content-length", b"%d" % size_bytes))
    await x.answer_parts(200, headers, parts)
