"""Every reason for which the gateway refuses a request: one table, from which the docs page is generated.

429: the tenant is over its share. 503: no capacity now. 400: it cannot ever fit, or it is malformed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final, NamedTuple

from policy.admission import NotAdmitted


class Reason(NamedTuple):
    """`status` is the HTTP status; a client may try again later only where `retry` is set."""

    status: int
    error_type: str
    means: str
    do: str

    @property
    def retry(self) -> bool:
        return self.status in (429, 503)


_BAD = "invalid_request_error"
_AUTH = "authentication_error"
_DENIED = "permission_error"
_LIMIT = "rate_limit_error"
_BUSY = "overloaded_error"
_ENGINE = "engine_error"
_TIMEOUT = "timeout_error"
_NO_NUMBERS: Mapping[str, int] = MappingProxyType({})

REASONS: Final[dict[str, Reason]] = {
    "missing_key": Reason(401, _AUTH, "No key was sent.", "Send `Authorization: Bearer hw-…` or `X-Api-Key: hw-…`."),
    "unknown_key": Reason(401, _AUTH, "The key is not known.", "Check the key, or ask for a new one."),
    "key_blocked": Reason(401, _AUTH, "The key was blocked by an operator.", "Ask the operators of the fleet."),
    "key_expired": Reason(401, _AUTH, "The key's life is over.", "Ask for a new key."),
    "metrics_token": Reason(
        401, _AUTH, "The metrics page is for its scrapers.", "Send HEADWORKS_GATEWAY_METRICS_TOKEN as bearer token."
    ),
    "tenant_blocked": Reason(403, _DENIED, "The tenant was blocked by an operator.", "Ask the operators of the fleet."),
    "model_not_allowed": Reason(403, _DENIED, "The tenant may not use this model.", "See `GET /v1/models`."),
    "priority_class_not_allowed": Reason(
        403, _DENIED, "The tenant may not use this priority class.", "Leave X-Priority-Class out, or ask for the class."
    ),
    "no_batch_class": Reason(
        403, _DENIED, "Batches have no priority class here.", "Ask the operators (HEADWORKS_GATEWAY_BATCH_CLASS)."
    ),
    "file_not_found": Reason(404, _BAD, "The tenant has no such file.", "`GET /v1/files` lists the files."),
    "batch_not_found": Reason(404, _BAD, "The tenant has no such batch.", "`GET /v1/batches` lists the batches."),
    "file_in_use": Reason(409, _BAD, "A batch still reads the file.", "Cancel the batch, or wait for its end."),
    "batch_ended": Reason(409, _BAD, "The batch has ended already.", "Nothing is left to cancel."),
    "bad_upload": Reason(400, _BAD, "The upload is no form with a file for a batch.", "Send what the message names."),
    "bad_batch": Reason(400, _BAD, "The batch, or a parameter, is not as it must be.", "Correct what is named."),
    "batch_files_full": Reason(
        429, _LIMIT, "The tenant's files have as many bytes as they may.", "Delete files that are done with."
    ),
    "too_many_batches": Reason(
        429, _LIMIT, "As many batches of the tenant are open as may be.", "Wait for one of them to end."
    ),
    "batches_unavailable": Reason(
        503, _BUSY, "The control plane, which keeps files and batches, does not answer.", "Wait for Retry-After."
    ),
    "unknown_path": Reason(404, _BAD, "There is no such endpoint.", "See the list of endpoints in the docs."),
    "unknown_request": Reason(
        404, _BAD, "No such request of the tenant is remembered.", "Send the x-request-id of a recent answer."
    ),
    "model_not_found": Reason(404, _BAD, "No such model is configured.", "`GET /v1/models` lists the models."),
    "method_not_allowed": Reason(405, _BAD, "The endpoint takes another method.", "POST completions, GET the rest."),
    "body_too_large": Reason(400, _BAD, "The body is larger than the gateway takes.", "Send a shorter prompt."),
    "body_too_slow": Reason(400, _BAD, "The body did not arrive in time.", "Send the body in one go."),
    "headers_too_large": Reason(400, _BAD, "The headers are larger than the gateway takes.", "Send fewer headers."),
    "bad_header": Reason(400, _BAD, "A request header has no usable value.", "Correct the header that is named."),
    "bad_json": Reason(400, _BAD, "The body is not JSON in UTF-8.", "Send one JSON object in UTF-8."),
    "bad_field": Reason(400, _BAD, "A field has a wrong type or lies out of range.", "Correct the field in `param`."),
    "conflicting_max_tokens": Reason(400, _BAD, "max_tokens and max_completion_tokens differ.", "Send one of the two."),
    "n_above_cap": Reason(400, _BAD, "More sequences are asked for than the tenant may.", "Lower n and best_of."),
    "context_length_exceeded": Reason(400, _BAD, "The prompt leaves no room in the context.", "Shorten the prompt."),
    "schema_too_large": Reason(400, _BAD, "The schema of the answer has too many bytes.", "Send a smaller schema."),
    "schema_too_deep": Reason(400, _BAD, "The schema's objects and arrays nest too deep.", "Flatten the schema."),
    "schema_too_broad": Reason(
        400, _BAD, "One anyOf, oneOf or enum has too many alternatives.", "Send fewer, and check the rest yourself."
    ),
    "ignored_field": Reason(
        400, _BAD, "The engines would ignore a field that constrains the answer.", "Send `response_format`."
    ),
    "never_fits": Reason(
        400, _BAD, "The tenant's limit can never hold the request.", "Ask for less, or for a higher limit."
    ),
    "never_fits_kv": Reason(
        400, _BAD, "The request is larger than any engine of its pools can ever hold.", "Lower max_tokens or n."
    ),
    "session_depth": Reason(
        400, _BAD, "Agents call agents deeper than they may.", "Let the calling agent do the work."
    ),
    "rejected_by_route": Reason(400, _BAD, "A route rejects such requests.", "Follow the message of the route."),
    "no_route": Reason(400, _BAD, "No route matches the request.", "Ask the operators which requests are served."),
    "api_not_served": Reason(
        400, _BAD, "The engines of the model do not serve this API.", "Ask for a model that has it, or by another API."
    ),
    "answer_too_large": Reason(
        400, _BAD, "The answer to all inputs is larger than the gateway takes.", "Send fewer inputs at once."
    ),
    "engine_rejected": Reason(400, _BAD, "The engine found the request invalid.", "Correct what the message names."),
    "tpm_limit": Reason(429, _LIMIT, "The tenant's tokens per minute are used up.", "Wait for Retry-After."),
    "rpm_limit": Reason(429, _LIMIT, "The tenant's requests per minute are used up.", "Wait for Retry-After."),
    "daily_token_budget": Reason(
        429, _LIMIT, "The tenant's tokens of the day are used up.", "Wait for its next day, or ask for a higher budget."
    ),
    "feedback_limit": Reason(
        429, _LIMIT, "The tenant sent more feedback than it may in a minute.", "Wait for Retry-After."
    ),
    "too_many_schemas": Reason(
        429, _LIMIT, "The tenant used too many different schemas within an hour.", "Send the same schema again."
    ),
    "max_parallel_requests": Reason(
        429, _LIMIT, "The tenant's parallel sequences are all running.", "Wait for one of them to end."
    ),
    "session_iterations": Reason(
        429, _LIMIT, "The session has made all the model calls that it may.", "End the loop; begin a new session."
    ),
    "session_tokens": Reason(
        429, _LIMIT, "The session's tokens are used up.", "End the loop; begin a new session with less in it."
    ),
    "session_cost": Reason(
        429, _LIMIT, "The session has cost all that it may.", "End the loop; begin a new session with less in it."
    ),
    "session_repeated_call": Reason(
        429, _LIMIT, "The same tool was called with the same arguments again and again.", "End the loop; see the tool."
    ),
    "not_ready": Reason(503, _BUSY, "The gateway has no configuration yet.", "Wait for Retry-After."),
    "saturated": Reason(
        503, _BUSY, "The queue of every pool is full; only `/readyz` says so.", "Send requests to another gateway."
    ),
    "draining": Reason(503, _BUSY, "This gateway is shutting down.", "Connect again: another one will answer."),
    "no_engine": Reason(503, _BUSY, "No engine of the pool takes work now.", "Wait for Retry-After."),
    "breaker_open": Reason(503, _BUSY, "The circuit breaker holds requests back.", "Wait for Retry-After."),
    "queue_full": Reason(503, _BUSY, "As many requests wait for the pool as may.", "Wait for Retry-After."),
    "queue_timeout": Reason(
        503, _BUSY, "No place became free in the time that a request may wait.", "Wait for Retry-After."
    ),
    "cannot_finish_in_time": Reason(
        503, _BUSY, "Its turn would come after its deadline, or its time to wait.", "Wait for Retry-After."
    ),
    "shed": Reason(
        503, _BUSY, "It gave way to one of a better class, or of a tenant with fewer waiting.", "Wait for Retry-After."
    ),
    "no_kv_capacity": Reason(503, _BUSY, "All admissible KV cache is reserved now.", "Wait for Retry-After."),
    "engine_overloaded": Reason(503, _BUSY, "The engine refused for lack of capacity.", "Wait for Retry-After."),
    "engine_unreachable": Reason(503, _ENGINE, "No engine could be reached.", "Wait for Retry-After."),
    "engine_error": Reason(502, _ENGINE, "The engine failed or answered nonsense.", "Try again; tell the operators."),
    "deadline_exceeded": Reason(504, _TIMEOUT, "The request ran out of time.", "Ask for less, or allow more time."),
    "internal_error": Reason(500, "internal_error", "The gateway failed.", "Try again; tell the operators."),
}


class Refused(Exception):
    """A request that is not served: `reason` is a name in REASONS, `message` says what would be right.

    `numbers` are those that were weighed, for the log of decisions. `headers`: more of the answer.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        param: str | None = None,
        retry_after_seconds: float = 0,
        numbers: Mapping[str, int] = _NO_NUMBERS,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        super().__init__(message)
        self.reason, self.message, self.param = reason, message, param
        self.retry_after_seconds, self.numbers, self.headers = retry_after_seconds, numbers, headers

    @property
    def row(self) -> Reason:
        return REASONS[self.reason]


@contextmanager
def refusing() -> Iterator[None]:
    """What the policy does not admit is refused."""
    try:
        yield
    except NotAdmitted as error:
        raise Refused(error.reason, error.message, param=error.param) from None


def asked_for(amount: int, noun: str) -> str:
    """`1 token is asked for`, `2 tokens are asked for`."""
    return f"{amount} {noun} is asked for" if amount == 1 else f"{amount} {noun}s are asked for"


def docs_table() -> str:
    """The table of docs/refusals.md."""
    lines = ["| reason | status | what it means | what to do |", "|---|---|---|---|"]
    lines += [f"| `{name}` | {row.status} | {row.means} | {row.do} |" for name, row in REASONS.items()]
    return "\n".join(lines) + "\n"
