"""The stages of a request before an engine hears of it. Each takes the exchange, adds what it learns, or refuses.

They raise Refused, and NotAdmitted where the policy refuses (see `refusals.refusing`).
"""

from __future__ import annotations

import hashlib
import random

from gateway.exchange import Exchange
from gateway.refusals import Refused
from policy.admission import (
    bounded_output,
    check_key,
    check_model,
    check_prompt,
    check_sequences,
    check_tenant,
    priority_class,
)
from policy.asks import TEXT_FIELD, Ask
from policy.kv import reservation_tokens
from policy.routing import RequestFacts, choose_route
from wire.snapshot import Key, Tenant

_MAX_TIMEOUT_DIGITS = 12


async def identify(x: Exchange) -> None:
    """Bearer key → tenant; priority class and deadline, if the headers name them."""
    x.tenant_name, x.tenant = find_tenant(x)
    header = x.headers.get(b"x-priority-class")
    asked_class = None if header is None else header.decode("latin-1")
    x.priority_class = priority_class(x.tenant, asked_class, x.view.snapshot.priority_classes)
    asked = x.headers.get(b"x-request-timeout-ms")
    if asked is not None:
        if not asked.isdigit() or len(asked) > _MAX_TIMEOUT_DIGITS or int(asked) == 0:
            raise Refused("bad_header", "X-Request-Timeout-Ms must be a whole number of milliseconds above zero")
        deadline = x.arrived + int(asked) / 1000
        x.deadline_is_clients = deadline < x.deadline
        x.deadline = min(x.deadline, deadline)


def find_tenant(x: Exchange) -> tuple[str, Tenant]:
    """Raises: Refused (`missing_key`, `unknown_key`), NotAdmitted (`key_blocked`, `key_expired`, `tenant_blocked`)."""
    secret = bearer(x)
    if not secret:
        raise Refused("missing_key", "send the tenant's key as `Authorization: Bearer hw-…`")
    key: Key | None = x.view.snapshot.keys.get(hashlib.sha256(secret).hexdigest())
    if key is None:
        raise Refused("unknown_key", "the key is not known here")
    tenant = x.view.snapshot.tenants[key.tenant]
    check_key(key, x.gateway.unix_ms())
    check_tenant(key.tenant, tenant)
    return key.tenant, tenant


def bearer(x: Exchange) -> bytes:
    """The bearer token of the request; empty where it has none."""
    scheme, _, secret = x.headers.get(b"authorization", b"").partition(b" ")
    return secret.strip() if scheme.lower() == b"bearer" else b""


async def read(x: Exchange) -> None:
    """The body, bounded; its model, if it exists and the tenant may use it."""
    body = await x.read_body()
    x.ask = Ask(x.endpoint, body)
    x.cancel_when_client_leaves()
    x.model_name = x.view.model_called(x.ask.model)
    check_model(x.tenant, x.ask.model, x.model_name, x.view.snapshot.models)
    x.model = x.view.snapshot.models[x.model_name]


async def measure(x: Exchange) -> None:
    """The prompt's length in tokens, which must leave room for an answer."""
    x.size = await x.gateway.measure.prompt_tokens(x.ask, x.model)
    check_prompt(x.model, x.size.tokens, measured=x.size.source == "tokenizer", param=TEXT_FIELD[x.endpoint])


async def route(x: Exchange) -> None:
    """Rules on model, tenant, class and sizes → pools in the order of preference."""
    facts = RequestFacts(
        model=x.model_name,
        tenant=x.tenant_name,
        priority_class=x.priority_class,
        prompt_tokens=x.size.tokens,
        max_tokens=x.ask.asked_max_tokens or x.model.default_max_tokens,
    )
    # Weights spread load; nobody gains by guessing the draw.
    result = choose_route(x.view.routes, facts, random.random())  # noqa: S311
    if result.reason == "rejected":
        raise Refused("rejected_by_route", result.message)
    if result.reason == "no_route":
        raise Refused("no_route", f"none of {len(x.view.routes)} routes matches this request")
    x.route = result
    if x.ask.asked_max_tokens is None:
        x.gateway.metrics.left_max_tokens_open(result.pools[0], x.tenant_name)


async def bound_output(x: Exchange) -> None:
    """max_tokens: the default where none was asked, never above the model's, the tenant's, or the context's room."""
    check_sequences(x.tenant, x.ask.sequences)
    x.max_tokens, x.max_tokens_note = bounded_output(x.ask.asked_max_tokens, x.size.tokens, x.model, x.tenant)
    if x.ask.asked_max_tokens is not None:
        return
    # A default must not turn a small limit into a refusal for ever; what was left open may be less.
    if (largest := x.gateway.quotas.largest_tokens(x.tenant_name)) is not None:
        fits = (largest - x.size.tokens) // x.ask.sequences
        x.max_tokens = max(1, min(x.max_tokens, fits))


async def count_arrival(x: Exchange) -> None:
    """Before the quota, so that what was asked for counts whether or not it is admitted."""
    x.gateway.sketches.arrived(x.tenant_name, x.priority_class, x.route.pools[0], x.size.tokens, x.max_tokens)


async def take_quota(x: Exchange) -> None:
    """Reserve the worst case: prompt + max_tokens a sequence; one request; the sequences."""
    tokens = reservation_tokens(x.size.tokens, x.max_tokens, x.ask.sequences)
    x.lease = x.gateway.quotas.take(x.tenant_name, tokens, x.ask.sequences)
