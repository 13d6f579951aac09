"""A request that somebody asks the tester about: by its sizes, or whole, as a client sends it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, Field, RootModel
from pydantic_core import PydanticCustomError

from controlplane.core import fields as f
from controlplane.fleet.models import Engine, EngineKind
from controlplane.fleet.services import ALIASES, MODELS
from controlplane.routing.measuring import Size, measured
from controlplane.routing.services import RouteFields
from controlplane.tenants.models import TenantKey
from controlplane.tenants.services import PRIORITY_CLASSES, TENANTS, keys
from policy.admission import check_key, check_model, check_prompt, check_sequences, check_tenant, priority_class
from policy.asks import ENDPOINTS, TEXT_FIELD, Ask, Endpoint, PromptTokens
from policy.names import model_called
from policy.routing import RequestFacts
from wire import snapshot
from wire.problems import Problem

_HEADERS_MAX, _HEADER_CHARACTERS_MAX = 100, 8192
_NO_TENANT = snapshot.Tenant()
CLASS_HEADER = "x-priority-class"
_KEY_HEADERS = {"authorization", "x-api-key"}


def _no_secret(headers: dict[str, str]) -> dict[str, str]:
    lowered = {name.lower(): value for name, value in headers.items()}
    if lowered.keys() & _KEY_HEADERS:
        message = "leave Authorization and X-Api-Key out, and give the key's first 8 characters instead"
        raise PydanticCustomError("secret", message)
    return lowered


Path = Literal[
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/rerank", "/v1/messages"
]
Header = Annotated[str, Field(max_length=_HEADER_CHARACTERS_MAX)]
Headers = Annotated[dict[Header, Header], Field(max_length=_HEADERS_MAX), AfterValidator(_no_secret)]
Candidates = Annotated[dict[f.Name, RouteFields], Field(max_length=f.NAMES_MAX)]


class RequestFields(f.Fields):
    """A request as the rules see it. `max_tokens`: the asked output length, or the model's default.

    `routes` {name: fields}: tried instead of those that there are.
    """

    model: f.ModelName
    tenant: f.Name
    priority_class: f.Name
    prompt_tokens: f.Count
    max_tokens: f.Count
    routes: Candidates | None = None


class SentFields(f.Fields):
    """A request as a client sends it, and who: a `tenant`, or its key's first 8 characters.

    Of `headers` X-Priority-Class counts.
    """

    path: Path = "/v1/chat/completions"
    body: dict[str, Any]
    headers: Headers = {}
    tenant: f.Name | None = None
    key_prefix: (
        Annotated[f.Text, Field(min_length=keys.PREFIX_CHARACTERS, max_length=keys.PREFIX_CHARACTERS)] | None
    ) = None


class SentRequestFields(f.Fields):
    """`routes` {name: fields}: tried instead of those that there are."""

    request: SentFields
    routes: Candidates | None = None


class Question(RootModel[RequestFields | SentRequestFields]):
    """What the tester takes."""


@dataclass(frozen=True)
class Asked:
    """What is known of the request. `model`, `tenant`: None where there is none of the name."""

    facts: RequestFacts
    size: Size
    asked_model: str
    asked_max_tokens: int | None
    sequences: int
    generates: bool
    endpoint: Endpoint
    model: snapshot.Model | None
    tenant: snapshot.Tenant | None


def by_sizes(fields: RequestFields) -> Asked:
    """Names that do not exist are taken as they are: a rule may be tried before its tenant is made."""
    tenant = _tenant(fields.tenant)
    name = _model_called(fields.model, tenant)
    facts = RequestFacts(name, fields.tenant, fields.priority_class, fields.prompt_tokens, fields.max_tokens)
    return Asked(
        facts=facts,
        size=Size(fields.prompt_tokens, fields.prompt_tokens, "given"),
        asked_model=fields.model,
        asked_max_tokens=fields.max_tokens,
        sequences=1,
        generates=True,
        endpoint="chat",
        model=_model(name),
        tenant=tenant,
    )


def by_body(sent: SentFields) -> Asked:
    """Raises Refused where it is not said whose request it is, NotAdmitted where gateways would refuse it."""
    tenant_name, tenant = _whose(sent)
    class_name = priority_class(tenant, sent.headers.get(CLASS_HEADER), set(PRIORITY_CLASSES.keys()))
    endpoint = ENDPOINTS[sent.path]
    ask = Ask(endpoint, json.dumps(sent.body).encode())
    name = _model_called(ask.model, tenant)
    found = _model(name)
    models = {} if found is None else {name: found}
    check_model(tenant, ask.model, name, models)
    model = models[name]
    size = measured(ask, model)
    if ask.asks_to_shorten and not Engine.objects.filter(pool__model__name=name).exclude(kind=EngineKind.VLLM).exists():
        tokens, longest = ask.shortened(PromptTokens(size.tokens, size.longest), model)
        size = size._replace(tokens=tokens, longest=longest)
    check_prompt(model, size.longest, measured=size.is_measured, param=TEXT_FIELD[endpoint], answered=ask.generates)
    check_sequences(tenant, ask.sequences)
    return Asked(
        facts=RequestFacts(name, tenant_name, class_name, size.tokens, ask.max_tokens_or(model.default_max_tokens)),
        size=size,
        asked_model=ask.model,
        asked_max_tokens=ask.asked_max_tokens,
        sequences=ask.sequences,
        generates=ask.generates,
        endpoint=endpoint,
        model=model,
        tenant=tenant,
    )


def _whose(sent: SentFields) -> tuple[str, snapshot.Tenant]:
    if (sent.tenant is None) == (sent.key_prefix is None):
        f.refuse_if([Problem("/request/tenant", "one_of", "give either `tenant` or `key_prefix`")])
    name = sent.tenant or _tenant_of_key(sent.key_prefix or "")
    tenant = _tenant(name)
    if tenant is None:
        raise f.refused([Problem("/request/tenant", "reference", f"tenant {name!r} does not exist")])
    check_tenant(name, tenant)
    return name, tenant


def _tenant_of_key(prefix: str) -> str:
    found = list(TenantKey.objects.filter(prefix=prefix).order_by("pk").values_list("key_hash", flat=True)[:2])
    if len(found) != 1:
        says = "several keys begin so; give `tenant`" if found else "no key begins so"
        raise f.refused([Problem("/request/key_prefix", "reference", says)])
    key = msgspec.convert(keys.compile_key(found[0]), snapshot.Key)
    check_key(key, time.time_ns() // 1_000_000)
    return key.tenant


def _model_called(name: str, tenant: snapshot.Tenant | None) -> str:
    alias = ALIASES.find(name)
    aliases = {} if alias is None else {name: snapshot.Alias(alias.model.name)}
    return model_called(name, tenant or _NO_TENANT, aliases)


def _model(name: str) -> snapshot.Model | None:
    row = MODELS.find(name)
    return None if row is None else msgspec.convert(MODELS.wire_form(row), snapshot.Model)


def _tenant(name: str) -> snapshot.Tenant | None:
    row = TENANTS.find(name)
    return None if row is None else msgspec.convert(TENANTS.wire_form(row), snapshot.Tenant)
