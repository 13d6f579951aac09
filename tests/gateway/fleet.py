"""A small configuration, a scripted engine, and a real gateway process, for the gateway's tests."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import os
import signal
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from bench.support.snapshot_server import SnapshotServer
from policy.asks import ENDPOINTS
from tests.services import Process, free_port

MODEL = "acme/small-8b"
KEYS = {name: f"hw-{name}-secret" for name in ("alpha", "beta", "blocked", "stale", "parked")}


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def configuration(*engine_urls: str) -> dict[str, Any]:
    """Two tenants without limits, one model, one pool `main` with an engine a URL (`e0`, `e1` …)."""
    return {
        "kind": "gateway",
        "schema": 1,
        "tenants": {"alpha": {}, "beta": {}, "gone": {"blocked": True}},
        "keys": {
            sha256(KEYS["alpha"]): {"tenant": "alpha", "prefix": "hw-alpha"},
            sha256(KEYS["beta"]): {"tenant": "beta", "prefix": "hw-beta-"},
            sha256(KEYS["blocked"]): {"tenant": "alpha", "prefix": "hw-block", "blocked": True},
            sha256(KEYS["stale"]): {"tenant": "alpha", "prefix": "hw-stale", "expires_at_ms": 1},
            sha256(KEYS["parked"]): {"tenant": "gone", "prefix": "hw-parke"},
        },
        "priority_classes": {"interactive": {"rank": 0}, "batch": {"rank": 9}},
        "models": {MODEL: {"max_context_tokens": 2000, "default_max_tokens": 50, "max_tokens": 400}},
        "pools": {"main": {"model": MODEL}},
        "engines": {
            f"e{number}": {"url": url, "kind": "vllm", "pool": "main", "served_model": "served-8b"}
            for number, url in enumerate(engine_urls)
        },
        "routes": {"all": {"order": 10, "pools": {"main": 1000}}},
    }


def shared_configuration(*engine_urls: str, pools: tuple[str, ...] = ("main",)) -> dict[str, Any]:
    """The same with the breakers of these pools held closed, for a gateway that several tests share.

    What engines do wrong in one test must not keep them from the next.
    """
    held = {"subject_kind": "pool", "state": "closed", "owner": "ada", "reason": "tests", "expires_at_ms": 2**50}
    return changed(configuration(*engine_urls), overrides={pool: {**held, "subject": pool} for pool in pools})


def changed(content: dict[str, Any], **paths: Any) -> dict[str, Any]:
    """A copy with values set: `changed(c, tenants__alpha={"tpm_limit": 5})`."""
    content = copy.deepcopy(content)
    for path, value in paths.items():
        *parents, last = path.split("__")
        place = content
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return content


def chat(text: str = "hello", **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **fields}


def usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def delta(text: str) -> dict[str, Any]:
    return {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}}]}


def event(document: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


class ScriptedEngine:
    """An engine that does what a test says. By default it answers two tokens at once, with usage (7, 2).

    `behave(request, body, engine)` may take over; `open_requests` and `closed_at` tell when connections end.
    """

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.open_requests = 0
        self.closed_at: list[float] = []
        self.arrived = asyncio.Event()
        self.release = asyncio.Event()
        self.stuck = asyncio.Event()
        self.usage: dict[str, int] | None = usage(7, 2)
        self.behave: Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]] = self.answer
        self.tokenize_bodies: list[dict[str, Any]] = []
        self.tokenize: Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]] = self.failing(404)
        # Its metrics page; None: it has none.
        self.page: bytes | None = None
        self.takes_no_more = False
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application(client_max_size=64 * 2**20)
        for path in ENDPOINTS:
            app.router.add_post(path, self._serve)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_get("/metrics", self._metrics)
        # A client that leaves cancels the handler, as it aborts a sequence in a real engine.
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0, access_log=None)
        await self._runner.setup()
        self._site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await self._site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def close_port(self) -> None:
        """Take no further connection, and keep those over which answers are awaited."""
        self.takes_no_more = True
        await self._site.stop()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.Response:
        headers = {"Content-Type": "text/plain; version=0.0.4"}
        answer = web.Response(status=404) if self.page is None else web.Response(body=self.page, headers=headers)
        if self.takes_no_more:
            answer.force_close()
        return answer

    async def _tokenize(self, request: web.Request) -> web.StreamResponse:
        self.tokenize_bodies.append(await request.json())
        return await self.tokenize(request, self.tokenize_bodies[-1])

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self.open_requests += 1
        self.arrived.set()
        try:
            return await self.behave(request, body)
        finally:
            self.open_requests -= 1
            self.closed_at.append(time.monotonic())

    async def answer(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if body.get("stream"):
            closing = [event({"choices": [], "usage": self.usage})] if self.usage else []
            return await self.stream(request, event(delta("a")), event(delta("b")), *closing, DONE)
        answer: dict[str, Any] = {"object": "chat.completion", "choices": [{"message": {"content": "ab"}}]}
        return web.json_response({**answer, "usage": self.usage} if self.usage else answer)

    async def stream(self, request: web.Request, *parts: bytes) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for part in parts:
            await response.write(part)
        await response.write_eof()
        return response

    async def silence(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        """Say nothing until `release`, then answer."""
        await self.release.wait()
        return await self.answer(request, body)

    async def one_token_then_silence(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(event(delta("first")))
        await self.release.wait()
        await response.write(event(delta("second")) + event({"choices": [], "usage": self.usage}) + DONE)
        return response

    async def drip(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        """A token every 10 ms, without end."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        while True:
            await response.write(event(delta("a")))
            await asyncio.sleep(0.01)

    async def flood(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        """Stream without end; `stuck` is set when nobody has taken any of it for a while."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        piece = event(delta("x" * 100_000))
        while True:
            writing = asyncio.ensure_future(response.write(piece))
            done, _ = await asyncio.wait((writing,), timeout=0.5)
            if not done:
                self.stuck.set()
            await writing

    async def one_token_then_cut(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(event(delta("first")))
        transport = request.transport
        assert transport is not None
        transport.abort()
        return response

    async def cut(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        """Close the connection without an answer."""
        transport = request.transport
        assert transport is not None
        transport.abort()
        return web.Response()

    def failing(
        self, status: int, document: dict[str, Any] | None = None
    ) -> Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]:
        async def fail(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
            return web.json_response(document or {"error": {"message": f"failed at {self.url}"}}, status=status)

        return fail

    def erring_stream(self, code: int) -> Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]:
        """HTTP 200 whose first event is an error, as vLLM sends when its admission limits refuse."""

        async def err(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
            return await self.stream(request, event({"error": {"message": "full", "code": code}}), DONE)

        return err


def _sum(samples: Iterable[Sample], name: str, labels: dict[str, str]) -> float:
    return sum(each.value for each in samples if each.name == name and labels.items() <= each.labels.items())


async def scripted_engine() -> AsyncIterator[ScriptedEngine]:
    """A fixture for files that share a gateway: of loop scope `module`, which is kept at the function itself."""
    engine = ScriptedEngine()
    await engine.start()
    yield engine
    await engine.stop()


class RunningGateway:
    """A `headworks-gateway` process, the control plane it follows, and a client for it."""

    def __init__(
        self,
        control: SnapshotServer,
        state_dir: Path,
        environment: dict[str, str],
        address: str,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.control, self.state_dir, self._environment = control, state_dir, environment
        self.port = free_port()
        self.url = f"http{'s' if tls else ''}://{address}:{self.port}"
        self.http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls or True))
        self.process: Process
        self._samples_before: list[Sample] = []
        self._said_before = 0

    def launch(self) -> None:
        token_file = self.state_dir.parent / "join-token"
        token_file.write_text(self.control.join_token)
        argv = [sys.executable, "-m", "gateway.cli", "--control-url", self.control.url, "--name", "gw-test"]
        argv += ["--join-token-file", str(token_file), "--state-dir", str(self.state_dir), "--port", str(self.port)]
        self.process = Process(argv, log=self.state_dir.parent / "gateway.log", environment=self._environment)

    async def until_ready(self) -> None:
        await self.until(lambda: self.ready_status(), 200, "the gateway to be ready")

    async def ready_status(self) -> int:
        try:
            async with self.http.get(f"{self.url}/readyz") as answer:
                return answer.status
        except aiohttp.ClientError:
            assert self.process.exit_code is None, self.process.log_tail()
            return 0

    async def until(self, ask: Callable[[], Awaitable[Any]], wanted: Any, what: str, timeout_s: float = 15) -> None:
        """Ask again until the answer is `wanted`."""
        deadline = time.monotonic() + timeout_s
        while (answer := await ask()) != wanted:
            assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}; last answer: {answer!r}"
            await asyncio.sleep(0.01)

    async def until_left(self, engine: ScriptedEngine) -> None:
        """Until the engine has noticed that nothing is asked of it any more."""

        async def open_requests() -> int:
            return engine.open_requests

        await self.until(open_requests, 0, f"{engine.url} to be left")

    async def publish(self, content: dict[str, Any] | None = None, live_gateways: int | None = None) -> None:
        """Send a slice and wait until the gateway has answered it."""
        revision = self.control.publish(content, live_gateways=live_gateways)

        async def answered() -> bool:
            return self.control.answer_to(revision) is not None

        await self.until(answered, True, f"an ack of revision {revision}")

    async def begin_anew(self, content: dict[str, Any]) -> None:
        """Serve this with nothing left of what was served before: no tenant's quota, no pool's queue, no breaker.

        The process and its counters go on; `grown` says by how much since then, `said` what it has logged.
        """
        await self.publish({"kind": "gateway", "schema": 1})
        self._said_before = self.process.log.stat().st_size
        await self.publish(content)
        self._samples_before = await self._samples()

    def post(
        self,
        body: Any,
        tenant: str | None = "alpha",
        path: str = "/v1/chat/completions",
        headers: dict[str, str] | None = None,
    ) -> aiohttp.client._RequestContextManager:
        own = {"Authorization": f"Bearer {KEYS[tenant]}"} if tenant else {}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.http.post(f"{self.url}{path}", data=data, headers={**own, **(headers or {})})

    async def call(self, body: Any, tenant: str | None = "alpha", **options: Any) -> tuple[int, Any, dict[str, str]]:
        """(status, parsed body, headers in lower case) of one request."""
        async with self.post(body, tenant, **options) as answer:
            data = await answer.read()
            headers = {name.lower(): value for name, value in answer.headers.items()}
            return answer.status, json.loads(data), headers

    async def call_status(self, body: Any, tenant: str | None = "alpha") -> int:
        async with self.post(body, tenant) as answer:
            await answer.read()
            return answer.status

    async def open_stream(self, body: Any) -> aiohttp.ClientResponse:
        """The answer with its body unread; the caller closes it."""
        return await self.post(body)

    async def refusal(self, body: Any, tenant: str | None = "alpha", **options: Any) -> tuple[int, str]:
        """(status, named reason); the error has OpenAI's four fields and the headers of every answer."""
        status, document, headers = await self.call(body, tenant, **options)
        assert set(document) == {"error"}, document
        assert set(document["error"]) == {"message", "type", "code", "param"}
        assert headers["x-request-id"]
        assert headers["x-headworks-revision"] == str(self.control.revision)
        assert ("retry-after" in headers) == (status in (429, 503))
        return status, document["error"]["code"]

    async def remaining_tokens(self, tenant: str = "alpha") -> int:
        """What GET /v1/models says is left; it takes nothing."""
        async with self.http.get(
            f"{self.url}/v1/models", headers={"Authorization": f"Bearer {KEYS[tenant]}"}
        ) as answer:
            return int(answer.headers["x-ratelimit-remaining-tokens"])

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples with these labels."""
        return _sum(await self._samples(), name, labels)

    async def grown(self, name: str, **labels: str) -> float:
        """By how much such a sum has grown since `begin_anew`."""
        return _sum(await self._samples(), name, labels) - _sum(self._samples_before, name, labels)

    def said(self) -> str:
        """What the process has logged since `begin_anew`."""
        return self.process.log.read_bytes()[self._said_before :].decode(errors="replace")

    async def _samples(self) -> list[Sample]:
        async with self.http.get(f"{self.url}/metrics") as answer:
            families = text_string_to_metric_families(await answer.text())
        return [sample for family in families for sample in family.samples]

    async def stop(self) -> None:
        await self.http.close()
        await asyncio.to_thread(self.process.stop)


@asynccontextmanager
async def running_gateway(
    folder: Path,
    content: dict[str, Any],
    environment: dict[str, str] | None = None,
    address: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
    control: SnapshotServer | None = None,
) -> AsyncIterator[RunningGateway]:
    """`tls`: what a client trusts, where `environment` has the gateway speak HTTPS. `control`: one that holds more."""
    if control is None:
        control = SnapshotServer(content)
    await control.start()
    gateway = RunningGateway(control, folder / "state", environment or {}, address, tls)
    gateway.launch()
    try:
        await gateway.until_ready()
        yield gateway
    except BaseException:
        print(gateway.process.log_tail(), file=sys.stderr)
        raise
    finally:
        await gateway.stop()
        await control.stop()


def terminate(gateway: RunningGateway) -> None:
    os.kill(gateway.process.pid, signal.SIGTERM)
