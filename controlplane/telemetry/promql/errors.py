"""Why a query has no answer, in Prometheus' own terms (`error_type` and HTTP status)."""

from __future__ import annotations

from http import HTTPStatus


class QueryError(Exception):
    """A query without an answer; the message says why."""

    error_type = "execution"
    status = HTTPStatus.UNPROCESSABLE_ENTITY


class BadQuery(QueryError):
    """The query or a parameter is wrong as it stands."""

    error_type, status = "bad_data", HTTPStatus.BAD_REQUEST


class Unsupported(QueryError):
    """PromQL that the embedded store does not evaluate; an external engine does."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the embedded store does not support {what}; docs/metrics.md lists what it does")


class Unanswerable(QueryError):
    """The query is right but has no answer on these series, such as a many-to-many match."""


class TooMuch(QueryError):
    """More samples than HEADWORKS_METRICS_QUERY_SAMPLES_MAX, or a label or an answer beyond bounds."""


class TimedOut(QueryError):
    error_type, status = "timeout", HTTPStatus.SERVICE_UNAVAILABLE


class Unavailable(QueryError):
    """The store or the external engine does not answer now; trying again can help."""

    error_type, status = "unavailable", HTTPStatus.SERVICE_UNAVAILABLE
