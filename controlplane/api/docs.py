"""The OpenAPI page: local files and no inline script, so that it works air-gapped and under the site's policy."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from ninja import NinjaAPI
from ninja.openapi.docs import DocsBase


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
            "name": "X-Headworks-Protocol",
            "in": "header",
            "description": "Version of the protocol that the target speaks; the newest where it is absent.",
            "schema": {"type": "integer"},
        },
    ],
    "responses": {
        "200": {"description": "The stream.", "content": {"text/event-stream": {"schema": {"type": "string"}}}},
        **{
            status: {"description": says, "content": {"application/problem+json": {"schema": {"type": "object"}}}}
            for status, says in (
                ("400", "`have` is no number."),
                ("401", "The token is unknown or has expired."),
                ("403", "The target was revoked."),
                ("426", "The protocol is not served."),
            )
        },
    },
}
