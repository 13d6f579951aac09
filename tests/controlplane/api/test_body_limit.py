"""Bodies are bounded before anything of them is kept."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from controlplane import settings_rows as rows
from controlplane.api.body_limit import with_body_limit
from controlplane.batches import settings_rows as batch_rows
from controlplane.core.errors import Forbidden, Refused, Unauthenticated
from tests.controlplane.configs.live import Live, live_site
from wire.settings import Setting

BODY_MAX, UPLOAD_MAX = 2000, 4000
ARTIFACTS = "/api/v1/artifacts"


class Site:
    """Reads a whole body, as Django does, and answers 200; `read` is what it got."""

    def __init__(self) -> None:
        self.read: bytes | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message["body"]
            if not message["more_body"]:
                break
        self.read = body
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(rows.BODY_MAX_BYTES.name, str(BODY_MAX))
    monkeypatch.setenv(rows.ARTIFACT_MAX_BYTES.name, str(UPLOAD_MAX))


async def request(
    method: str,
    path: str,
    chunks: list[bytes],
    length: int | None = None,
    *,
    may_upload: Callable[[Any], Refused | None] = lambda scope: None,
) -> tuple[int, bytes, bytes | None]:
    """Status, answer, and the body that the site read (None: it read none to its end)."""
    site, sent = Site(), []
    parts: Iterator[tuple[int, bytes]] = iter(enumerate(chunks, 1))

    async def receive() -> dict[str, Any]:
        number, chunk = next(parts)
        return {"type": "http.request", "body": chunk, "more_body": number < len(chunks)}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [] if length is None else [(b"content-length", str(length).encode())]
    scope = {"type": "http", "method": method, "path": path, "headers": headers}
    await with_body_limit(site, may_upload)(scope, receive, send)
    return sent[0]["status"], sent[1]["body"], site.read


@pytest.mark.parametrize(
    ("method", "path", "limit"),
    [
        ("POST", "/api/v1/tenants", BODY_MAX),
        ("POST", "/log-in/", BODY_MAX),
        ("PUT", ARTIFACTS, BODY_MAX),
        ("POST", f"{ARTIFACTS}/", BODY_MAX),
        ("POST", ARTIFACTS, UPLOAD_MAX),
    ],
)
async def test_only_an_upload_may_be_larger_than_other_bodies(method: str, path: str, limit: int) -> None:
    at_limit = [b"x" * 1000] * (limit // 1000)
    assert await request(method, path, at_limit, limit) == (200, b"", b"x" * limit)
    assert await request(method, path, at_limit) == (200, b"", b"x" * limit)
    # By what it says, with nothing read; and by what has come, where it says nothing.
    for chunks, length in (([], limit + 1), ([*at_limit, b"x", b"never read"], None)):
        status, answer, read = await request(method, path, chunks, length)
        assert (status, read) == (413, None)
        problem = json.loads(answer)
        assert problem["code"] == "too_large"
        assert str(limit) in problem["detail"]


async def test_an_upload_may_always_be_as_large_as_other_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(rows.BODY_MAX_BYTES.name, str(2 * UPLOAD_MAX))
    body = b"x" * 2 * UPLOAD_MAX
    assert await request("POST", ARTIFACTS, [body], len(body)) == (200, b"", body)


async def test_a_large_upload_is_kept_of_nobody_who_may_not_upload() -> None:
    judged: list[str] = []

    def nobody(scope: Any) -> Refused:
        judged.append(scope["path"])
        return Forbidden("no")

    large = [b"x" * 1000] * 3
    for chunks, length in (([], 3000), (large, None)):
        status, answer, read = await request("POST", ARTIFACTS, chunks, length, may_upload=nobody)
        assert (status, json.loads(answer)["code"], read) == (403, "forbidden", None)
    assert judged == [ARTIFACTS] * 2
    # What any call may send is left to the call itself, and others are no uploads.
    small = [b"x" * BODY_MAX]
    assert await request("POST", ARTIFACTS, small, BODY_MAX, may_upload=nobody) == (200, b"", small[0])
    assert (await request("POST", "/api/v1/tenants", [], 3000, may_upload=nobody))[0] == 413
    assert judged == [ARTIFACTS] * 2


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_site(tmp_path_factory.mktemp("live")) as running:
        yield running


def upload(live: Live, length: int, token: str, *, chunked: bool) -> tuple[int, str]:
    """Status and error code of an upload of which only what a refusal waits for is sent."""
    framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {length}"
    chunk = b"x" * 65_536
    with socket.create_connection(("127.0.0.1", live.port), timeout=30) as connection:
        head = f"POST {ARTIFACTS} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n{framing}\r\n\r\n"
        connection.sendall(head.encode())
        if chunked:
            for _ in range(length // len(chunk) + 1):
                connection.sendall(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        return answer.status, json.loads(answer.read())["code"]


@pytest.mark.parametrize("chunked", [False, True])
def test_the_real_server_refuses_what_is_too_large_and_serves_the_next(live: Live, chunked: bool) -> None:
    limit = rows.ARTIFACT_MAX_BYTES.default
    token = live.rest.token
    assert upload(live, limit + 1, token, chunked=chunked) == (413, "too_large")
    assert live.rest.get("/me")["role"] == "admin"


@pytest.mark.parametrize("chunked", [False, True])
def test_the_real_server_takes_no_large_upload_from_a_stranger(live: Live, chunked: bool) -> None:
    assert upload(live, rows.BODY_MAX_BYTES.default + 1, "hwt-unknown", chunked=chunked) == (401, "unauthenticated")
    assert live.rest.get("/me")["role"] == "admin"


@pytest.mark.parametrize(
    ("path", "row"), [("files", batch_rows.FILE_MAX_BYTES), ("results", batch_rows.RESULT_MAX_BYTES)]
)
async def test_what_gateways_send_of_batches_is_bounded_by_its_own_setting(
    monkeypatch: pytest.MonkeyPatch, path: str, row: Setting[int]
) -> None:
    monkeypatch.setattr("controlplane.api.body_limit.target_by_token", lambda scope: None)
    monkeypatch.setenv(row.name, str(2 << 20))
    address = f"/api/v1/batch-work/{path}"
    status, _, read = await request("POST", address, [b"x" * (1 << 20)] * 2)
    assert (status, len(read or b"")) == (200, 2 << 20)
    # A form has something around its file.
    status, answer, _ = await request("POST", address, [b"x" * (1 << 20)] * 2 + [b"x" * (BODY_MAX + 1)])
    assert status == 413
    assert row.name in json.loads(answer)["detail"]


async def test_a_stranger_sends_no_large_file_for_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.api.body_limit.target_by_token", lambda scope: Unauthenticated("who"))
    status, _, read = await request("POST", "/api/v1/batch-work/files", [b"x" * (BODY_MAX + 1)])
    assert (status, read) == (401, None)
