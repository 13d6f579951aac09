"""The ASGI application: which path does what."""

from __future__ import annotations

import hmac
from contextlib import suppress

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST

from gateway import settings
from gateway.admission import bearer, find_tenant
from gateway.batches.calls import answer as answer_batches
from gateway.batches.calls import is_call
from gateway.exchange import ClientLeft, Exchange, Message, Receive, Send
from gateway.feedback import PATH as FEEDBACK_PATH
from gateway.feedback import take_feedback
from gateway.metrics import UNKNOWN
from gateway.pipeline import run
from gateway.refusals import Refused, refusing
from gateway.state import NOTHING_YET, Gateway
from policy.asks import ENDPOINTS

_TEXT = (b"content-type", b"text/plain; charset=utf-8")
_GET_PATHS = ("/v1/models", "/healthz", "/readyz", "/metrics")
# A model's name may hold slashes.
_ONE_MODEL = "/v1/models/"


class App:
    """`await app(scope, receive, send)` for HTTP requests."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._metrics_token = settings.METRICS_TOKEN.read().encode()
        self._batch_class = settings.BATCH_CLASS.read()
        self._tells_saturation = settings.NOT_READY_WHEN_SATURATED.read()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        x = Exchange(self._gateway, self._gateway.view or NOTHING_YET, scope, receive, send)
        try:
            x.read_headers()
            if scope["path"] == FEEDBACK_PATH:
                await self._feedback(x)
                return
            endpoint = ENDPOINTS.get(scope["path"])
            if endpoint is None:
                await (self._batches(x) if is_call(scope["path"]) else self._get(x))
                return
            _need_method(x, "POST")
            self._need_ready()
            x.endpoint = endpoint
        except Refused as refused:
            self._gateway.metrics.request(UNKNOWN, x.tenant_name or UNKNOWN, UNKNOWN, "refused", refused.reason)
            self._gateway.decisions.refused(x, "receive", refused)
            await x.refuse(refused)
            return
        await run(x)

    async def _feedback(self, x: Exchange) -> None:
        _need_method(x, "POST")
        self._need_ready()
        with suppress(ClientLeft), refusing():
            await take_feedback(x)

    async def _batches(self, x: Exchange) -> None:
        self._need_ready()
        batches = self._gateway.batches
        await answer_batches(x, None if batches is None else batches.link, self._batch_class)

    async def _get(self, x: Exchange) -> None:
        path = x.scope["path"]
        if path not in _GET_PATHS and not path.startswith(_ONE_MODEL):
            raise Refused("unknown_path", f"there is no {path[:200]!r} here")
        _need_method(x, "GET")
        if path == "/healthz":
            await x.answer(200, (_TEXT,), b"ok\n")
        elif path == "/readyz":
            await self._ready(x)
        elif path == "/metrics":
            await x.answer(200, ((b"content-type", CONTENT_TYPE_LATEST.encode()),), await self._metrics_page(x))
        else:
            await self._models(x, path[len(_ONE_MODEL) :] or None)

    async def _metrics_page(self, x: Exchange) -> bytes:
        if not self._is_operator(x):
            raise Refused("metrics_token", "send `Authorization: Bearer` with the token of the metrics page")
        return await self._gateway.metrics.page(self._gateway.moment())

    async def _ready(self, x: Exchange) -> None:
        status, said = 200, "ready\n"
        try:
            self._need_ready()
            self._need_room()
        except Refused as refused:
            status, said = refused.row.status, f"{refused.reason}\n"
        if (error := self._gateway.stream_state().error) and self._is_operator(x):
            said += f"configuration: {error}\n"
        if self._is_operator(x) and (told := self._gateway.quotas.told()):
            said += f"quotas: {told}\n"
        await x.answer(status, (_TEXT,), said.encode())

    def _is_operator(self, x: Exchange) -> bool:
        """May see names of tenants and addresses of the control plane: all, unless a token is set."""
        return not self._metrics_token or hmac.compare_digest(bearer(x), self._metrics_token)

    async def _models(self, x: Exchange, asked: str | None) -> None:
        """The models that the tenant may use, or the one that is asked for."""
        self._need_ready()
        with refusing():
            x.tenant_name, tenant = find_tenant(x)
        models = {
            name: {"id": name, "object": "model", "created": 0, "owned_by": "headworks"}
            for name in x.view.models_for(tenant)
        }
        if asked is None:
            await x.answer_json(200, msgspec.json.encode({"object": "list", "data": list(models.values())}))
        elif asked in models:
            await x.answer_json(200, msgspec.json.encode(models[asked]))
        else:
            raise Refused("model_not_found", f"the model {asked[:200]!r} does not exist", param="model")

    def _need_ready(self) -> None:
        if self._gateway.draining:
            raise Refused("draining", "this gateway is shutting down; connect again", retry_after_seconds=1)
        if self._gateway.view is None:
            wait = self._gateway.limits.capacity_retry_seconds
            raise Refused("not_ready", "the gateway has no configuration yet", retry_after_seconds=wait)

    def _need_room(self) -> None:
        if self._tells_saturation and self._gateway.saturated():
            raise Refused("saturated", "the queue of every pool is full")


def _need_method(x: Exchange, method: str) -> None:
    if x.scope["method"] != method and not (method == "GET" and x.scope["method"] == "HEAD"):
        allow = ((b"allow", method.encode()),)
        raise Refused("method_not_allowed", f"{x.scope['path']} takes {method}", headers=allow)
