"""The stages of a request before an engine hears of it. Each takes the exchange, adds what it learns, or refuses."""

from __future__ import annotations

import hashlib
import random

from msgspec import UNSET

from gateway.exchange import Exchange
from gateway.openai import Ask
from gateway.refusals import Refused, asked_for
from policy.kv import reservation_tokens
from policy.routing import RequestFacts, choose_route
from wire.snapshot import Key, Tenant

_MAX_TIMEOUT_DIGITS = 12


async def identify(x: Exchange) -> None:
    """Bearer key → tenant; priority class and deadline, if the headers name them."""
    x.tenant_name, x.tenant = find_tenant(x)
    x.priority_class = _priority_class(x)
    asked = x.headers.get(b"x-request-timeout-ms")
    if asked is not None:
        if not asked.isdigit() or len(asked) > _MAX_TIMEOUT_DIGITS or int(asked) == 0:
            raise Refused("bad_header", "X-Request-Timeout-Ms must be a whole number of milliseconds above zero")
        deadline = x.arrived + int(asked) / 1000
        x.deadline_is_clients = deadline < x.deadline
        x.deadline = min(x.deadline, deadline)


def find_tenant(x: Exchange) -> tuple[str, Tenant]:
    """Raises: Refused (`missing_key`, `unknown_key`, `key_blocked`, `key_expired`, `tenant_blocked`)."""
    secret = bearer(x)
    if not secret:
        raise Refused("missing_key", "send the tenant's key as `Authorization: Bearer hw-…`")
    key: Key | None = x.view.snapshot.keys.get(hashlib.sha256(secret).hexdigest())
    if key is None:
        raise Refused("unknown_key", "the key is not known here")
    if key.blocked:
        raise Refused("key_blocked", f"the key {key.prefix}… is blocked")
    if key.expires_at_ms is not UNSET and key.expires_at_ms <= x.gateway.unix_ms():
        raise Refused("key_expired", f"the key {key.prefix}… has expired")
    tenant = x.view.snapshot.tenants[key.tenant]
    if tenant.blocked:
        raise Refused("tenant_blocked", f"the tenant {key.tenant!r} is blocked")
    return key.tenant, tenant


def bearer(x: Exchange) -> bytes:
    """The bearer token of the request; empty where it has none."""
    scheme, _, secret = x.headers.get(b"authorization", b"").partition(b" ")
    return secret.strip() if scheme.lower() == b"bearer" else b""


def _priority_class(x: Exchange) -> str:
    default = x.tenant.default_priority_class
    asked = x.headers.get(b"x-priority-class")
    if asked is None:
        return "" if default is UNSET else default
    name = asked.decode("latin-1")
    if name not in x.view.snapshot.priority_classes:
        raise Refused("bad_header", "X-Priority-Class names no priority class")
    if x.tenant.priority_classes is not UNSET and name not in x.tenant.priority_classes and name != default:
        raise Refused("priority_class_not_allowed", f"the tenant may not use the priority class {name!r}")
    return name


async def read(x: Exchange) -> None:
    """The body, bounded; its model, if it exists and the tenant may use it."""
    x.ask = Ask(x.endpoint, await x.read_body())
    x.cancel_when_client_leaves()
    model = x.view.snapshot.models.get(x.ask.model)
    if model is None:
        raise Refused("model_not_found", f"the model {x.ask.model!r} does not exist", param="model")
    if x.tenant.models is not UNSET and x.ask.model not in x.tenant.models:
        raise Refused("model_not_allowed", f"the tenant may not use the model {x.ask.model!r}", param="model")
    x.model = model


async def measure(x: Exchange) -> None:
    """The prompt's length in tokens, which must leave room for an answer."""
    x.size = await x.gateway.measure.prompt_tokens(x.ask, x.model)
    room = x.model.max_context_tokens - x.size.tokens
    if room < 1 and x.size.source == "tokenizer":
        raise Refused(
            "context_length_exceeded",
            f"the prompt has {x.size.tokens} tokens; the model's context of {x.model.max_context_tokens} tokens "
            "must also hold the answer",
            param="messages" if x.endpoint == "chat" else "prompt",
        )


async def route(x: Exchange) -> None:
    """Rules on model, tenant, class and sizes → pools in the order of preference."""
    facts = RequestFacts(
        model=x.ask.model,
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
    cap = x.tenant.n_cap
    if cap is not UNSET and x.ask.sequences > cap:
        message = f"{asked_for(x.ask.sequences, 'sequence')}; the tenant may ask for {cap}"
        raise Refused("n_above_cap", message, param="n")
    ceiling = x.model.max_tokens
    if x.tenant.max_tokens_cap is not UNSET:
        ceiling = min(ceiling, x.tenant.max_tokens_cap)
    # An estimated prompt may be too long in appearance only: leave the last word to the engine.
    ceiling = max(1, min(ceiling, x.model.max_context_tokens - x.size.tokens))
    asked = x.ask.asked_max_tokens
    if asked is not None:
        x.max_tokens = min(asked, ceiling)
        x.max_tokens_note = "clamped" if asked > ceiling else ""
        return
    x.max_tokens = min(x.model.default_max_tokens, ceiling)
    x.max_tokens_note = "default"
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
