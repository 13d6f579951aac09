"""The HTTP face of a simulated engine: vLLM's routes, and two to make it misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from simulator.answers import DONE, Identity
from simulator.core import EngineCore
from simulator.dev import Adapters, DevEndpoints, Route, Running
from simulator.generation import Api, Generator, Job
from simulator.grammars import Grammars
from simulator.http_server import Exchange, chunk, error_body
from simulator.instant import InstantAnswers
from simulator.live import LiveAnswer
from simulator.messages import messages_error
from simulator.metrics import EngineMetrics
from simulator.pathologies.conditions import Conditions
from simulator.pathologies.engine import EngineConditions
from simulator.pathologies.front_end import FrontEnd
from simulator.pooling import PooledAnswer, PooledJob, plan_embeddings, plan_rerank
from simulator.requests import ApiError, Fault, StreamField, TokenizeRequest, bad_request, decode
from simulator.scheduler import Limits

VERSION = "0.32.0+simulated"
METRICS_PAGE = b"text/plain; version=0.0.4; charset=utf-8"
# Longer bodies are tokenized on another thread, so that they do not stop everyone's stream.
LONG_BODY_BYTES = 64 * 1024
log = logging.getLogger("simulator.engine")
T = TypeVar("T")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")


class EngineService:
    """Answers exchanges. `core` is None for an instant engine, which schedules nothing.

    `server_info` is what dev mode tells of the configuration; None: dev mode is off. `runtime_lora`: adapters may be
    loaded and unloaded. `schema_compile_seconds`: what the first request with a schema waits. `api_servers`:
    API processes that the engine is taken to have.
    """

    def __init__(
        self,
        generator: Generator,
        metrics: EngineMetrics,
        limits: Limits,
        core: EngineCore | None,
        server_info: dict[str, Any] | None = None,
        runtime_lora: bool = False,
        schema_compile_seconds: float = 0.0,
        api_servers: int = 1,
    ) -> None:
        self._generator, self._metrics, self._limits, self._core = generator, metrics, limits, core
        self._instant = InstantAnswers(generator, metrics) if core is None else None
        self._grammars = Grammars(schema_compile_seconds)
        front_end = None if core is None else FrontEnd(api_servers)
        self._conditions = EngineConditions(metrics, self._grammars, front_end)
        self._started_at = int(time.time())
        self._fault = Fault(kind="none")
        self._faulty_requests = 0
        self._live: set[LiveAnswer | PooledAnswer] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._stopping = False
        running = Running(self._idle, self._freeze, self._abort_all)
        self._dev = None if server_info is None else DevEndpoints(running, metrics, server_info)
        self._adapters = Adapters(generator, self._forget_answers) if runtime_lora else None
        self._routes: dict[bytes, Route] = {
            b"/v1/chat/completions": (b"POST", lambda exchange: self._generate(exchange, "chat")),
            b"/v1/completions": (b"POST", lambda exchange: self._generate(exchange, "completions")),
            b"/v1/responses": (b"POST", lambda exchange: self._generate(exchange, "responses")),
            b"/v1/messages": (b"POST", lambda exchange: self._generate(exchange, "messages")),
            b"/v1/embeddings": (b"POST", lambda exchange: self._pool(exchange, plan_embeddings)),
            b"/v1/rerank": (b"POST", lambda exchange: self._pool(exchange, plan_rerank)),
            b"/v1/models": (b"GET", self._models),
            b"/health": (b"GET", lambda exchange: exchange.answer(200, b"")),
            b"/ping": (b"GET", lambda exchange: exchange.answer(200, b"")),
            b"/version": (b"GET", lambda exchange: exchange.answer(200, msgspec.json.encode({"version": VERSION}))),
            b"/load": (b"GET", lambda exchange: exchange.answer(200, b'{"server_load":%d}' % len(self._live))),
            b"/metrics": (b"GET", self._page),
            b"/tokenize": (b"POST", self._tokenize),
            b"/simulator/fault": (b"POST", self._set_fault),
            b"/simulator/conditions": (b"POST", self._set_conditions),
            **(self._dev.routes if self._dev else {}),
            **(self._adapters.routes if self._adapters else {}),
        }

    def __call__(self, exchange: Exchange) -> None:
        request = exchange.request
        method, handler = self._routes.get(request.path, (b"", None))
        if handler is None:
            exchange.answer(404, error_body(404, "NotFoundError", "there is no such path"))
        elif request.method != method:
            allow = b"allow: %b\r\n" % method
            exchange.answer(405, error_body(405, "BadRequestError", f"use {method.decode()}"), headers=allow)
        else:
            try:
                handler(exchange)
            except Exception as error:
                _refuse(exchange, error)

    def hold(self, wanted: Conditions) -> None:
        """Let these conditions hold, and no others."""
        self._conditions.hold(wanted.conditions)

    async def stop(self, timeout_seconds: float) -> None:
        """Take no new work and give what runs so long to end; then end it by an error."""
        self._stopping = True
        if self._live and timeout_seconds > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), timeout_seconds)
        self._abort_all("the engine was shut down")

    def _freeze(self, frozen: bool) -> None:
        if self._core is not None:
            self._core.set_paused(frozen)

    def _forget_answers(self) -> None:
        if self._instant is not None:
            self._instant.forget()

    def _abort_all(self, why: str = "the request was aborted by a pause") -> None:
        for answer in list(self._live):
            answer.fail(500, why)

    def _generate(self, exchange: Exchange, api: Api) -> None:
        if self._is_held_back(exchange):
            return
        if self._instant is not None:
            self._instant.answer(exchange, api, _request_id(exchange), int(time.time()))
        else:
            body = exchange.request.body
            self._plan(exchange, lambda: self._generator.plan(api, body), self._start)

    def _pool(self, exchange: Exchange, plan: Callable[[Generator, bytes], PooledJob]) -> None:
        if self._is_held_back(exchange):
            return
        if self._core is None:
            job = plan(self._generator, exchange.request.body)
            self._metrics.instant_prompts(job.prompt_tokens)
            exchange.answer(200, job.answer(_request_id(exchange), int(time.time())))
        else:
            body = exchange.request.body
            self._plan(exchange, lambda: plan(self._generator, body), self._start_pooled)

    def _is_held_back(self, exchange: Exchange) -> bool:
        """Whether a fault or a pause has answered or taken the request."""
        if self._stopping:
            raise ApiError(500, "InternalServerError", "the engine is shutting down")
        if self._fault.kind != "none" and self._misbehave(exchange):
            return True
        return self._dev is not None and self._dev.hold(lambda: self(exchange))

    def _plan(self, exchange: Exchange, plan: Callable[[], T], start: Callable[[Exchange, T], None]) -> None:
        def planned(future: asyncio.Future[T]) -> None:
            if future.cancelled():
                return
            if (error := future.exception()) is not None:
                _refuse(exchange, error)
            else:
                start(exchange, future.result())

        if len(exchange.request.body) <= LONG_BODY_BYTES:
            start(exchange, plan())
        else:
            asyncio.get_running_loop().run_in_executor(None, plan).add_done_callback(planned)

    def _start(self, exchange: Exchange, job: Job) -> None:
        if not exchange.open or self._core is None:
            return
        identity = Identity(job.shape.id_prefix + _request_id(exchange), int(time.time()))
        answer = LiveAnswer(
            exchange,
            job,
            identity,
            self._generator,
            self._core,
            self._metrics,
            self._conditions,
            ended=self._answer_ended,
        )
        wait_seconds = self._grammars.wait_seconds(job.schema, self._core.now())
        if wait_seconds:
            asyncio.get_running_loop().call_later(wait_seconds, self._run_if_open, exchange, answer)
        else:
            self._run(answer)

    def _run_if_open(self, exchange: Exchange, answer: LiveAnswer) -> None:
        if exchange.open:
            self._run(answer)

    def _start_pooled(self, exchange: Exchange, job: PooledJob) -> None:
        if not exchange.open or self._core is None:
            return
        request_id, created = _request_id(exchange), int(time.time())
        self._run(PooledAnswer(exchange, job, request_id, created, self._core, self._metrics, ended=self._answer_ended))

    def _run(self, answer: LiveAnswer | PooledAnswer) -> None:
        self._live.add(answer)
        self._idle.clear()
        answer.start()

    def _answer_ended(self, answer: LiveAnswer | PooledAnswer) -> None:
        self._live.discard(answer)
        if not self._live:
            self._idle.set()

    def _misbehave(self, exchange: Exchange) -> bool:
        """Do what the fault says; True when it answered or swallowed this request."""
        fault = self._fault
        if fault.requests is not None:
            self._faulty_requests += 1
            if self._faulty_requests >= fault.requests:
                self._apply(Fault(kind="none"))
        if fault.kind == "hang":
            # An instant engine has no core that could hang for it: the exchange stays without an answer.
            return self._core is None
        if fault.kind == "error_500":
            raise ApiError(500, "InternalServerError", "simulated fault: error_500")
        if fault.kind == "sse_error":
            error = error_body(503, "ServiceUnavailableError", "simulated fault: sse_error")
            if decode(exchange.request.body, StreamField).stream:
                exchange.start_stream()
                exchange.end_stream(chunk(b"data: %b\n\n" % error) + DONE)
            else:
                exchange.answer(503, error)
            return True
        return False

    def _page(self, exchange: Exchange) -> None:
        # For simulated GPUs (simulator/gpu/drive.py): they work for the core, which is ahead of what the page tells.
        core = b"x-simulated-core-running: %d\r\n" % len(self._metrics.scheduler.running)
        exchange.answer(200, self._metrics.page(), METRICS_PAGE, headers=core)

    def _set_fault(self, exchange: Exchange) -> None:
        if not exchange.from_loopback:
            raise ApiError(403, "PermissionDeniedError", "faults are taken from this machine only")
        fault: Fault = decode(exchange.request.body, Fault)
        if fault.kind == "slow" and self._core is None:
            raise bad_request("an instant engine has no steps to slow down", "kind")
        if fault.requests is not None and fault.kind not in ("error_500", "sse_error"):
            raise bad_request("requests is for error_500 and sse_error", "requests")
        self._apply(fault)
        exchange.answer(200, msgspec.json.encode(fault))

    def _set_conditions(self, exchange: Exchange) -> None:
        if not exchange.from_loopback:
            raise ApiError(403, "PermissionDeniedError", "conditions are taken from this machine only")
        wanted: Conditions = decode(exchange.request.body, Conditions)
        if self._core is None:
            raise bad_request("an instant engine computes nothing that could go wrong", "conditions")
        if len({type(condition) for condition in wanted.conditions}) < len(wanted.conditions):
            raise bad_request("a kind of condition may be given once", "conditions")
        self.hold(wanted)
        exchange.answer(200, msgspec.json.encode(wanted))

    def _apply(self, fault: Fault) -> None:
        self._fault, self._faulty_requests = fault, 0
        self._generator.obeys_formats = fault.kind != "drop_format"
        self._forget_answers()
        if self._core is not None:
            self._core.slow_factor = fault.factor if fault.kind == "slow" else 1.0
            self._core.set_hung(fault.kind == "hang")

    def _models(self, exchange: Exchange) -> None:
        cards = [
            {
                "id": name,
                "object": "model",
                "created": self._started_at,
                "owned_by": "headworks-simulator",
                "root": self._generator.served_names[0],
                "parent": None,
                "max_model_len": self._limits.max_model_len_tokens,
            }
            for name in self._generator.served_names
        ]
        for name, path in (self._adapters.paths if self._adapters else {}).items():
            cards.append({**cards[0], "id": name, "root": path, "parent": self._generator.served_names[0]})
        exchange.answer(200, msgspec.json.encode({"object": "list", "data": cards}))

    def _tokenize(self, exchange: Exchange) -> None:
        request: TokenizeRequest = decode(exchange.request.body, TokenizeRequest)
        if (request.prompt is None) == (request.messages is None):
            raise bad_request("give either prompt or messages", "prompt")
        if request.messages is not None:
            tokens = self._generator.tokenize_chat(request.messages)
        else:
            tokens = self._generator.tokenize(request.prompt or "")
        exchange.answer(
            200,
            msgspec.json.encode(
                {
                    "count": len(tokens),
                    "max_model_len": self._limits.max_model_len_tokens,
                    "tokens": tokens,
                    "token_strs": None,
                }
            ),
        )


def _request_id(exchange: Exchange) -> bytes:
    """The client's request id where it can stand in JSON and a header as it is, else a new one."""
    given = exchange.request.headers.get(b"x-request-id")
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given
    return uuid.uuid4().hex.encode()


def _refuse(exchange: Exchange, error: BaseException) -> None:
    if not isinstance(error, ApiError):
        log.error("a request to %r failed", exchange.request.path, exc_info=error)
        error = ApiError(500, "InternalServerError", "the simulated engine failed; its log says why")
    if exchange.request.path == b"/v1/messages":
        exchange.answer(error.status, messages_error(error.kind, str(error)))
    else:
        exchange.answer(error.status, error_body(error.status, error.kind, str(error), error.param))
