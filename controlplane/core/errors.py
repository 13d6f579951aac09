"""Every error of the control plane and how it looks over HTTP (RFC 9457 problem bodies)."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from django.http import HttpResponse

from wire.messages import MAX_PROBLEMS
from wire.problems import Problem


class Refused(Exception):
    """A request that is not carried out: `code` names why, `detail` says what would be right.

    `problems` gives every field and rule that failed. `retry_after_seconds` is set where trying again can help.
    """

    status = HTTPStatus.UNPROCESSABLE_ENTITY
    code = "invalid"

    def __init__(
        self,
        detail: str,
        problems: Sequence[Problem] = (),
        *,
        code: str | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail, self.problems, self.retry_after_seconds = detail, list(problems), retry_after_seconds
        self.code = code or type(self).code


class Malformed(Refused):
    """The body or a parameter cannot be read at all."""

    status, code = HTTPStatus.BAD_REQUEST, "malformed"


class Unauthenticated(Refused):
    status, code = HTTPStatus.UNAUTHORIZED, "unauthenticated"


class Forbidden(Refused):
    status, code = HTTPStatus.FORBIDDEN, "forbidden"


class NotFound(Refused):
    status, code = HTTPStatus.NOT_FOUND, "not_found"


class Conflict(Refused):
    """The thing exists already, or is in use, or changed meanwhile."""

    status, code = HTTPStatus.CONFLICT, "conflict"


class MethodNotAllowed(Refused):
    status, code = HTTPStatus.METHOD_NOT_ALLOWED, "method_not_allowed"


class JoinTokenExpired(Refused):
    status, code = HTTPStatus.GONE, "join_token_expired"


class PreconditionFailed(Refused):
    """The row is not as the caller's If-Match or If-None-Match says. `etag`: its ETag now, where there is a row."""

    status, code = HTTPStatus.PRECONDITION_FAILED, "stale"

    def __init__(self, detail: str, problems: Sequence[Problem], *, code: str, etag: str | None) -> None:
        super().__init__(detail, problems, code=code)
        self.etag = etag


class Throttled(Refused):
    """Too many tries; `retry_after_seconds` says when another counts."""

    status, code = HTTPStatus.TOO_MANY_REQUESTS, "throttled"


class TooLarge(Refused):
    status, code = HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large"


class ProtocolNotServed(Refused):
    status, code = HTTPStatus.UPGRADE_REQUIRED, "protocol_not_served"


class Failed(Refused):
    """Our own fault. The log says what happened, the caller is not told."""

    status, code = HTTPStatus.INTERNAL_SERVER_ERROR, "internal"


class Unavailable(Refused):
    """Not now; the same call may succeed in a moment."""

    status, code = HTTPStatus.SERVICE_UNAVAILABLE, "unavailable"

    def __init__(self, detail: str, *, retry_after_seconds: int = 1) -> None:
        super().__init__(detail, retry_after_seconds=retry_after_seconds)


def problem_body(error: Refused) -> dict[str, Any]:
    return {
        "type": "about:blank",
        "title": HTTPStatus(error.status).phrase,
        "status": int(error.status),
        "code": error.code,
        "detail": _encodable(error.detail),
        "problems": [
            {"path": _encodable(problem.path), "rule": problem.rule, "message": _encodable(problem.message)}
            for problem in error.problems[:MAX_PROBLEMS]
        ],
    }


def _encodable(text: str) -> str:
    """What a caller sent may stand in a message, and JSON can carry half of a surrogate pair, which UTF-8 cannot."""
    return text.encode(errors="backslashreplace").decode()


def problem_response(error: Refused) -> HttpResponse:
    response = HttpResponse(
        msgspec.json.encode(problem_body(error)), status=int(error.status), content_type="application/problem+json"
    )
    if error.status == HTTPStatus.UNAUTHORIZED:
        response["WWW-Authenticate"] = "Bearer"
    if isinstance(error, PreconditionFailed) and error.etag is not None:
        response["ETag"] = error.etag
    if error.retry_after_seconds is not None:
        response["Retry-After"] = str(error.retry_after_seconds)
    return response
