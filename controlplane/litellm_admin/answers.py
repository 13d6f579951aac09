"""Tenants and keys as LiteLLM's calls answer them, and refusals in its shape."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from controlplane.core.errors import Refused, problem_body
from wire.canonical import Document

_TYPES = {
    HTTPStatus.UNAUTHORIZED: "auth_error",
    HTTPStatus.FORBIDDEN: "auth_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
}


def team_form(tenant: Document) -> Document:
    """A tenant's public form as a team: one name, and no models for all."""
    return {
        "team_id": tenant["name"],
        "team_alias": tenant["name"],
        **_limits(tenant),
        "blocked": tenant["blocked"],
        "created_at": tenant["created_at"],
    }


def key_form(key: Document, tenant: Document) -> Document:
    """A key's public form. `token` is its number, which other calls take for the key; its limits are its team's."""
    return {
        "token": str(key["id"]),
        "token_id": str(key["id"]),
        "key_name": f"{key['prefix']}...",
        "key_alias": key["label"] or None,
        "team_id": key["tenant"],
        **_limits(tenant),
        "blocked": key["blocked"],
        "expires": key["expires_at"],
        "created_at": key["created_at"],
    }


def _limits(tenant: Document) -> Document:
    return {
        "tpm_limit": tenant["tpm_limit"],
        "rpm_limit": tenant["rpm_limit"],
        "max_parallel_requests": tenant["max_parallel_requests"],
        "models": tenant["models"] or [],
    }


def error_form(error: Refused) -> dict[str, Any]:
    """`code` is the HTTP status as text; `param` the first field that is wrong; the message names them all."""
    body = problem_body(error)
    problems = body["problems"]
    kind = "internal_server_error" if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR else "bad_request_error"
    return {
        "error": {
            "message": body["detail"],
            "type": _TYPES.get(HTTPStatus(error.status), kind),
            "param": problems[0]["path"].removeprefix("/") if problems else None,
            "code": str(int(error.status)),
        }
    }
