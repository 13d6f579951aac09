"""The stages of a request before an engine hears of it. Each takes the exchange, adds what it learns, or refuses.

They raise Refused, and NotAdmitted where the policy refuses (see `refusals.refusing`).
"""

from __future__ import annotations

import hashlib
import re

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
from policy.asks import TEXT_FIELD, Ask, PromptTokens
from policy.kv import reservation_tokens
from policy.routing import RequestFacts, choose_route
from wire.snapshot import Key, Tenant

_MAX_TIMEOUT_DIGITS = 12
_SECONDS = re.compile(rb"[0-9]{1,9}(?:\.[0-9]{1,9})?")


async def identify(x: Exchange) -> None:
    """Key → tenant; priority class and deadline, if the headers name them."""
    x.tenant_name, x.tenant = find_tenant(x)
    header = x.headers.get(b"x-priority-class")
    asked_class = None if header is None else header.decode("latin-1")
    x.priority_class = priority_class(x.tenant, asked_class, x.view.snapshot.priority_classes)
    asked = x.headers.get(b"x-request-timeout-ms")
    if asked is not None:
        if not asked.isdigit() or len(asked) > _MAX_TIMEOUT_DIGITS or int(asked) == 0:
            raise Refused("bad_header", "X-Request-Timeout-Ms must be a whole number of milliseconds above zero")
        _end_within(x, int(asked))


def _read_timeout_ms(x: Exchange) -> int:
    """How long an official client for Python waits for a whole answer, as it says of itself; 0 where it does not."""
    told = x.headers.get(b"x-stainless-read-timeout", b"")
    return round(float(told) * 1000) if _SECONDS.fullmatch(told) else 0


def _end_within(x: Exchange, timeout_ms: int) -> None:
    x.note(timeout_ms=timeout_ms)
    deadline = x.arrived + timeout_ms / 1000
    if deadline < x.deadline:
        x.deadline, x.deadline_is_clients = deadline, True


def find_tenant(x: Exchange) -> tuple[str, Tenant]:
    """Raises: Refused (`missing_key`, `unknown_key`), NotAdmitted (`key_blocked`, `key_expired`, `tenant_blocked`)."""
    if x.line is not None:
        return x.line.tenant(x)
    secret = tenant_key(x)
    if not secret:
        raise Refused("missing_key", "send the tenant's key as `Authorization: Bearer hw-…` or `X-Api-Key: hw-…`")
    key: Key | None = x.view.snapshot.keys.get(hashlib.sha256(secret).hexdigest())
    if key is None:
        raise Refused("unknown_key", "the key is not known here")
    tenant = x.view.snapshot.tenants[key.tenant]
    check_key(key, x.gateway.unix_ms())
    check_tenant(key.tenant, tenant)
    return key.tenant, tenant


def tenant_key(x: Exchange) -> bytes:
    """The key that the request came with; empty where it has none."""
    # Anthropic's clients send a key in a header of their own.
    return bearer(x) or x.headers.get(b"x-api-key", b"").strip()


def bearer(x: Exchange) -> bytes:
    """The bearer token of the request; empty where it has none."""
    scheme, _, secret = x.headers.get(b"authorization", b"").partition(b" ")
    return secret.strip() if scheme.lower() == b"bearer" else b""


async def read(x: Exchange) -> None:
    """The body, bounded; its model, if it exists and the tenant may use it."""
    body = await x.read_body()
    x.note(body_bytes=len(body))
    x.body_hash = hash(body)
    x.ask = Ask(x.endpoint, body)
    x.cancel_when_client_leaves()
    if x.ask.stream:
        x.start_heartbeat()
    elif timeout_ms := _read_timeout_ms(x):
        _end_within(x, timeout_ms)
    x.model_name = x.view.model_called(x.ask.model, x.tenant)
    if x.ask.model in x.tenant.pins:
        x.note(pinned=1)
    check_model(x.tenant, x.ask.model, x.model_name, x.view.snapshot.models)
    x.model = x.view.snapshot.models[x.model_name]


async def measure(x: Exchange) -> None:
    """The prompt's length in tokens, which must leave room for an answer."""
    size = await x.gateway.measure.prompt_size(x.ask, x.model_name, x.view, x.tenant_name)
    if x.ask.asks_to_shorten and x.view.is_served_by_vllm_alone(x.model_name):
        tokens, longest = x.ask.shortened(PromptTokens(size.tokens, size.longest), x.model)
        size = size._replace(tokens=tokens, longest=longest)
    x.size = size
    x.gateway.metrics.measured(x.model_name, x.size.source)
    x.note(prompt_tokens=x.size.tokens, longest_tokens=x.size.longest, max_context_tokens=x.model.max_context_tokens)
    check_prompt(
        x.model,
        x.size.longest,
        measured=x.size.is_measured,
        param=TEXT_FIELD[x.endpoint],
        answered=x.ask.generates,
    )


async def route(x: Exchange) -> None:
    """Rules on model, tenant, class and sizes → pools in the order of preference."""
    facts = RequestFacts(
        model=x.model_name,
        tenant=x.tenant_name,
        priority_class=x.priority_class,
        prompt_tokens=x.size.tokens,
        max_tokens=x.ask.max_tokens_or(x.model.default_max_tokens),
    )
    x.note(prompt_tokens=facts.prompt_tokens, max_tokens=facts.max_tokens)
    result = choose_route(x.view.routes_for(x.model_name), facts, x.gateway.draws.draw(x.model_name))
    if result.reason == "rejected":
        raise Refused("rejected_by_route", result.message)
    if result.reason == "no_route":
        raise Refused("no_route", f"none of {len(x.view.routes)} routes matches this request")
    x.route = result
    if x.ask.generates and x.ask.asked_max_tokens is None:
        x.gateway.metrics.left_max_tokens_open(result.pools[0], x.tenant_name)


async def bound_output(x: Exchange) -> None:
    """max_tokens: the default where none was asked, never above the model's, the tenant's, or the context's room."""
    check_sequences(x.tenant, x.ask.sequences)
    if not x.ask.generates:
        return
    x.max_tokens, x.max_tokens_note = bounded_output(x.ask.asked_max_tokens, x.size.longest, x.model, x.tenant)
    if x.session_output_tokens is not None and x.session_output_tokens < x.max_tokens:
        x.max_tokens, x.max_tokens_note = x.session_output_tokens, "session"
    asked = x.ask.asked_max_tokens
    # A default must not turn a small limit into a refusal for ever; what was left open may be less.
    if asked is None and (largest := x.gateway.quotas.largest_tokens(x.tenant_name)) is not None:
        fits = (largest - x.size.tokens) // x.ask.sequences
        x.max_tokens = max(1, min(x.max_tokens, fits))
    x.note(asked_max_tokens=asked or 0, max_tokens=x.max_tokens, sequences=x.ask.sequences)


async def count_arrival(x: Exchange) -> None:
    """Before the quota, so that what was asked for counts whether or not it is admitted."""
    x.gateway.sketches.arrived(x.tenant_name, x.priority_class, x.route.pools[0], x.size.tokens, x.max_tokens)
    x.gateway.fingerprints.arrived(x)
    if x.session is not None:
        x.gateway.metrics.patterns.session_request(x.route.pools[0], x.tenant_name)


async def take_quota(x: Exchange) -> None:
    """Reserve the worst case: prompt + max_tokens a sequence; one request; the sequences.

    A small model that is asked first is one call more, and not at the same time.
    """
    tokens = reservation_tokens(x.size.tokens, x.max_tokens, x.ask.sequences)
    if x.small is not None:
        tokens += x.small.tokens
    x.note(tokens=tokens, sequences=x.ask.sequences)
    x.lease = await x.gateway.quotas.reserve(x.tenant_name, tokens, x.ask.sequences)
    x.note(**x.gateway.quotas.numbers(x.tenant_name))
