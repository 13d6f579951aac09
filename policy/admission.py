"""What a tenant may ask for, and how long an answer may be: decided of every request before its quota.

Gateways refuse by these; the control plane's route tester tells what they would say.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from msgspec import UNSET

from policy.names import may_call
from wire.snapshot import Key, Model, Tenant


class NotAdmitted(ValueError):
    """`reason` is one of the gateway's table of refusals; `param` the field of the body that is at fault."""

    def __init__(self, reason: str, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.reason, self.message, self.param = reason, message, param


class OutputBound(NamedTuple):
    """`note`: `clamped`, `default` where none was asked, or empty."""

    max_tokens: int
    note: str


def check_key(key: Key, unix_ms: int) -> None:
    """Raises: NotAdmitted (`key_blocked`, `key_expired`)."""
    if key.blocked:
        raise NotAdmitted("key_blocked", f"the key {key.prefix}… is blocked")
    if key.expires_at_ms is not UNSET and key.expires_at_ms <= unix_ms:
        raise NotAdmitted("key_expired", f"the key {key.prefix}… has expired")


def check_tenant(name: str, tenant: Tenant) -> None:
    """Raises: NotAdmitted (`tenant_blocked`)."""
    if tenant.blocked:
        raise NotAdmitted("tenant_blocked", f"the tenant {name!r} is blocked")


def priority_class(tenant: Tenant, asked: str | None, known: Container[str]) -> str:
    """The class of a request whose X-Priority-Class is `asked`; empty where there is none.

    Raises: NotAdmitted (`bad_header`, `priority_class_not_allowed`).
    """
    default = tenant.default_priority_class
    if asked is None:
        return "" if default is UNSET else default
    if asked not in known:
        raise NotAdmitted("bad_header", "X-Priority-Class names no priority class")
    if tenant.priority_classes is not UNSET and asked not in tenant.priority_classes and asked != default:
        raise NotAdmitted("priority_class_not_allowed", f"the tenant may not use the priority class {asked!r}")
    return asked


def check_model(tenant: Tenant, asked: str, name: str, known: Container[str]) -> None:
    """`asked`: what the client calls the model `name`. Raises: NotAdmitted (`model_not_found`, `model_not_allowed`)."""
    if name not in known:
        raise NotAdmitted("model_not_found", f"the model {asked!r} does not exist", param="model")
    if not may_call(tenant, asked, name):
        raise NotAdmitted("model_not_allowed", f"the tenant may not use the model {asked!r}", param="model")


def check_prompt(model: Model, prompt_tokens: int, *, measured: bool, param: str, answered: bool = True) -> None:
    """An estimated prompt may be too long in appearance only. `answered`: the context must also hold an answer.

    Raises: NotAdmitted (`context_length_exceeded`).
    """
    if measured and prompt_tokens + answered > model.max_context_tokens:
        said = f"the prompt has {prompt_tokens} tokens; the model's context has {model.max_context_tokens} tokens"
        also = ", which must also hold the answer" if answered else ""
        raise NotAdmitted("context_length_exceeded", said + also, param=param)


def check_sequences(tenant: Tenant, sequences: int) -> None:
    """Raises: NotAdmitted (`n_above_cap`)."""
    cap = tenant.n_cap
    if cap is not UNSET and sequences > cap:
        message = f"{sequences} sequences are asked for; the tenant may ask for {cap}"
        raise NotAdmitted("n_above_cap", message, param="n")


def bounded_output(asked: int | None, prompt_tokens: int, model: Model, tenant: Tenant) -> OutputBound:
    """max_tokens: the default where none was asked, never above the model's, the tenant's, or the context's room."""
    ceiling = model.max_tokens
    if tenant.max_tokens_cap is not UNSET:
        ceiling = min(ceiling, tenant.max_tokens_cap)
    # An estimated prompt may be too long in appearance only: leave the last word to the engine.
    ceiling = max(1, min(ceiling, model.max_context_tokens - prompt_tokens))
    if asked is None:
        return OutputBound(min(model.default_max_tokens, ceiling), "default")
    return OutputBound(min(asked, ceiling), "clamped" if asked > ceiling else "")
