"""The OpenAPI page: local files and no inline script, so that it works air-gapped and under the site's policy."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from ninja import NinjaAPI
from ninja.openapi.docs import DocsBase

from controlplane.core import idempotency, preconditions


class LocalSwagger(DocsBase):
    def render_page(self, request: HttpRequest, api: NinjaAPI, **kwargs: Any) -> HttpResponse:
        settings = {
            "layout": "BaseLayout",
            "deepLinking": True,
            # Swagger would ask a validator on the internet.
            "validatorUrl": None,
            "url": self.get_openapi_url(api, kwargs),
        }
        return render(request, "api/docs.html", {"api": api, "swagger_settings": settings})


# See core.errors.problem_body.
PROBLEM_SCHEMA: dict[str, Any] = {
    "title": "Problem",
    "description": "Why a call is not carried out (RFC 9457). Retry-After is sent where trying again can help.",
    "type": "object",
    "required": ["type", "title", "status", "code", "detail", "problems"],
    "properties": {
        "type": {"type": "string", "const": "about:blank"},
        "title": {"type": "string", "description": "The status in words."},
        "status": {"type": "integer"},
        "code": {"type": "string", "description": "The reason's name, for programs."},
        "detail": {"type": "string", "description": "What would be right, for people."},
        "problems": {
            "type": "array",
            "description": "Every field that failed: where (JSON Pointer), which rule, what would be right.",
            "items": {
                "type": "object",
                "required": ["path", "rule", "message"],
                "properties": {name: {"type": "string"} for name in ("path", "rule", "message")},
            },
        },
    },
}
_PROBLEM_CONTENT = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
_EVERYWHERE = {
    "4XX": {"description": "Refused; `code` names why.", "content": _PROBLEM_CONTENT},
    "503": {"description": "Not now; try again after Retry-After.", "content": _PROBLEM_CONTENT},
}


def add_refusals(schema: dict[str, Any]) -> None:
    """Say of every call how its refusals look."""
    schema["components"]["schemas"]["Problem"] = PROBLEM_SCHEMA
    for methods in schema["paths"].values():
        for operation in methods.values():
            operation["responses"].update(_EVERYWHERE)


_IDEMPOTENCY_KEY = {
    "name": idempotency.HEADER,
    "in": "header",
    "description": (
        "Names the request: sent again with the same key by the same caller, it is answered as the first time and done "
        "once. 422 `idempotency_key_reused` where the key named another request."
    ),
    "schema": {"type": "string", "pattern": idempotency.KEY_PATTERN},
}
_ETAG = {"description": "Of the row's public form, for If-Match.", "schema": {"type": "string"}}
_REPLAYED = {
    "description": "`true` where this is the stored answer to a request that came before with the same key.",
    "schema": {"type": "string", "const": "true"},
}
_PRECONDITION_FAILED = {
    "description": "The row is not as If-Match or If-None-Match says; ETag says how it stands, where there is one.",
    "headers": {"ETag": _ETAG},
    "content": _PROBLEM_CONTENT,
}
_EDITS = frozenset({"patch", "put", "delete"})


def add_headers(schema: dict[str, Any]) -> None:
    """Say which headers writes take, and which they and the reads of single rows answer with."""
    written: dict[str, set[str]] = {}
    for path, methods in schema["paths"].items():
        written[path] = {method for method, operation in methods.items() if _is_write(operation)}
        for method in written[path]:
            _describe_write(methods[method], edits=method in _EDITS)
    for path, methods in schema["paths"].items():
        # A row is what is edited where it is read, or acted on below.
        acted_on = path.endswith("}") and any(written[other] for other in written if other.startswith(f"{path}/"))
        if "get" in methods and (acted_on or written[path] & _EDITS):
            _answers_with(methods["get"], {"ETag": _ETAG})


def _is_write(operation: dict[str, Any]) -> bool:
    """Every write needs a reason; lists only filter by one."""
    return any(given["name"] == "reason" and given["required"] for given in _parameters(operation, "query"))


def _parameters(operation: dict[str, Any], place: str) -> list[dict[str, Any]]:
    return [given for given in operation["parameters"] if given["in"] == place]


def _describe_write(operation: dict[str, Any], *, edits: bool) -> None:
    operation["parameters"] += [_IDEMPOTENCY_KEY, *(preconditions.IF_MATCH["parameters"] if edits else ())]
    if any(given["name"] in {"If-Match", "If-None-Match"} for given in _parameters(operation, "header")):
        operation["responses"]["412"] = _PRECONDITION_FAILED
    _answers_with(operation, {"ETag": _ETAG, idempotency.REPLAYED_HEADER: _REPLAYED})


def _answers_with(operation: dict[str, Any], headers: dict[str, Any]) -> None:
    for status, response in operation["responses"].items():
        # Ninja's own are numbers.
        if str(status) in {"200", "201"}:
            response["headers"] = headers


# The one call that Django does not answer (see configs.stream), so ninja does not know it.
STREAM_OPERATION: dict[str, Any] = {
    "operationId": "config_stream",
    "summary": "A target's config stream",
    "description": (
        "Server-sent events: `snapshot` (the whole slice), `patch` (RFC 7396, from the revision sent before), `peers` "
        "(how many gateways live), and a comment as ping. Each slice carries its hash; answer it at /config/ack. "
        "The events' schemas are at /schema/stream-snapshot, /schema/stream-patch and /schema/stream-peers."
    ),
    "tags": ["targets"],
    "security": [{"TargetAuth": []}],
    "parameters": [
        {
            "name": "have",
            "in": "query",
            "description": "The revision that the target holds; 0 for none.",
            "schema": {"type": "integer", "minimum": 0, "default": 0},
        },
        {
            "name": "hash",
            "in": "query",
            "description": "The hash of what the target holds; where it is not that revision's, the whole is sent.",
            "schema": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        },
        {
            "name": "X-Headworks-Protocol",
            "in": "header",
            "description": "Version of the protocol that the target speaks; the newest where it is absent.",
            "schema": {"type": "integer"},
        },
    ],
    "responses": {
        "200": {"description": "The stream.", "content": {"text/event-stream": {"schema": {"type": "string"}}}},
        **{
            status: {"description": says, "content": _PROBLEM_CONTENT}
            for status, says in (
                ("400", "`have` is no number or `hash` no SHA-256."),
                ("401", "The token is unknown or has expired."),
                ("403", "The target was revoked."),
                ("426", "The protocol is not served."),
            )
        },
    },
}
