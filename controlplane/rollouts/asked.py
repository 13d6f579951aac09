"""What somebody asks of a rollout: the fields of each kind, with their defaults."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, RootModel
from pydantic_core import PydanticCustomError

from controlplane.core import fields as f
from controlplane.fleet.services.versions import VersionLabel
from controlplane.rollouts.sides import WHOLE
from controlplane.telemetry.expressions import Expression
from wire.problems import Problem

ENGINES_MAX, SHIFTS_MAX, CONDITIONS_MAX, WARM_UPS_MAX = 256, 20, 20, 16
LASTS_MAX_SECONDS = 7 * 86_400
PROMPT_MAX_CHARACTERS, SCHEMA_MAX_CHARACTERS = 16_384, 16_384

Seconds = Annotated[int, Field(ge=1, le=LASTS_MAX_SECONDS)]
ActSeconds = Annotated[int, Field(ge=1, le=3600)]
Percent = Annotated[int, Field(ge=0, le=100)]


class ShiftFields(f.Fields):
    """The part of the old pool's traffic that goes to the new one, and how long that is watched."""

    share_permille: Annotated[int, Field(ge=1, le=WHOLE)]
    for_seconds: Seconds = 300


class ConditionFields(f.Fields):
    """PromQL, healthy as a staged publish's watch is. It is not judged below so many requests of the new pool."""

    name: f.Name
    expression: Expression
    minimum_requests: Annotated[int, Field(ge=0, le=1_000_000)] = 0


class WatchFields(f.Fields):
    """How the generated conditions judge: over a window, from so many requests on, tolerantly beside the old side.

    `tolerance_percent`: of times; `tolerance_permille`: of shares of requests. p95 times below `floor_ms` are never too
    long. `go_on_unjudged`: whether a step with too few requests goes on by itself, after three times what it should
    last, or asks a person.
    """

    window_seconds: Annotated[int, Field(ge=10, le=3600)] = 60
    minimum_requests: Annotated[int, Field(ge=1, le=1_000_000)] = 20
    tolerance_percent: Annotated[int, Field(ge=0, le=1000)] = 25
    tolerance_permille: f.PerMille = 20
    floor_ms: Annotated[int, Field(ge=0, le=600_000)] = 50
    go_on_unjudged: bool = False


def _json(text: str) -> str:
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict):
        raise PydanticCustomError("schema", "give a JSON schema: an object as text")
    return text


class WarmUpFields(f.Fields):
    """What each new engine is asked before it gets traffic: leading texts of prompts, and schemas of answers."""

    prompts: Annotated[
        list[Annotated[f.Text, Field(min_length=1, max_length=PROMPT_MAX_CHARACTERS)]], Field(max_length=WARM_UPS_MAX)
    ] = []
    schemas: Annotated[
        list[Annotated[f.Text, Field(max_length=SCHEMA_MAX_CHARACTERS), AfterValidator(_json)]],
        Field(max_length=WARM_UPS_MAX),
    ] = []
    requests: Annotated[int, Field(ge=1, le=64)] = 4
    limit_seconds: ActSeconds = 600


class NewEngineFields(f.Fields):
    """An engine to register, as POST /engines takes it; a key of its own is set there afterwards."""

    url: Annotated[str, Field(max_length=300)]
    served_model: Annotated[f.Text, Field(min_length=1, max_length=200)]
    kind: Literal["vllm", "sglang", "tgi", "llamacpp", "trtllm", "triton", "ollama"] = "vllm"
    node: f.Name | None = None
    kv_capacity_tokens: f.Count | None = None


NewEngines = Annotated[dict[f.Name, NewEngineFields], Field(min_length=1, max_length=ENGINES_MAX)]
EngineNames = Annotated[list[f.Name], Field(min_length=1, max_length=ENGINES_MAX), AfterValidator(f.distinct)]


class _ReadiedFields(f.Fields):
    """How new engines are made ready."""

    warm_up: WarmUpFields = WarmUpFields()
    start_limit_seconds: ActSeconds = 900
    check_limit_seconds: Seconds = 300


def _growing(steps: list[ShiftFields]) -> list[ShiftFields]:
    shares = [step.share_permille for step in steps]
    if shares != sorted(set(shares)) or shares[-1] != WHOLE:
        raise PydanticCustomError("order", "give shares that grow from step to step, the last one 1000")
    return steps


def _named_apart(conditions: list[ConditionFields]) -> list[ConditionFields]:
    if len({condition.name for condition in conditions}) < len(conditions):
        raise PydanticCustomError("unique", "give each condition a name of its own")
    return conditions


_SHIFTS = [ShiftFields(share_permille=share) for share in (50, 250, 500, WHOLE)]


class RedBlackFields(_ReadiedFields):
    """New engines beside the old, and traffic moved to them in steps.

    `new_pool` has engines already, or is made for `engines` with the settings of the old pool (and another `model`).
    `conditions`: instead of those that are generated from `watch`. `retire`: what becomes of the old engines when they
    were kept warm long enough.
    """

    kind: Literal["red_black"]
    pool: f.Name
    new_pool: f.Name
    engines: NewEngines | None = None
    model: f.ModelName | None = None
    steps: Annotated[list[ShiftFields], Field(min_length=1, max_length=SHIFTS_MAX), AfterValidator(_growing)] = _SHIFTS
    conditions: (
        Annotated[list[ConditionFields], Field(max_length=CONDITIONS_MAX), AfterValidator(_named_apart)] | None
    ) = None
    watch: WatchFields = WatchFields()
    keep_warm_seconds: Annotated[int, Field(ge=0, le=LASTS_MAX_SECONDS)] = 600
    retire: Literal["stop", "sleep", "leave"] = "stop"


class VersionedFields(_ReadiedFields):
    """A new version beside the others: a pool of its own, published as the newest of its family when it is ready.

    `pool` has engines already, or is made for `engines` with the settings of the pool `like`. `model`: the row that
    clients of the version reach. A route for it is made where there is none, at `route_order`.
    """

    kind: Literal["versioned"]
    family: f.ModelName
    version: VersionLabel
    model: f.ModelName
    pool: f.Name
    like: f.Name | None = None
    engines: NewEngines | None = None
    route_order: f.Count = 10


class RollingRestartFields(f.Fields):
    """The engines of a pool, or some of them, started anew by their agents, a few at a time.

    `arguments`: for vLLM; the pool's own unless given. `capacity_may_fall_percent`: by how much an engine's KV capacity
    may be smaller than before.
    """

    kind: Literal["rolling_restart"]
    pool: f.Name
    engines: EngineNames | None = None
    max_unavailable: Annotated[int, Field(ge=1, le=ENGINES_MAX)] = 1
    arguments: Annotated[dict[str, Any], Field(max_length=64)] | None = None
    drain_limit_seconds: ActSeconds = 600
    restart_limit_seconds: ActSeconds = 900
    check_limit_seconds: Seconds = 300
    capacity_may_fall_percent: Percent = 5


class ToSpareFields(f.Fields):
    """Engines that sleep, out of service, until they are needed. Level 1 keeps the weights in host memory."""

    kind: Literal["to_spare"]
    engines: EngineNames
    level: Literal[1] = 1
    drain_limit_seconds: ActSeconds = 600


class FromSpareFields(_ReadiedFields):
    """Back into service: spares that sleep, and whatever else a rollout that has ended holds out."""

    kind: Literal["from_spare"]
    engines: EngineNames


AnyFields = RedBlackFields | VersionedFields | RollingRestartFields | ToSpareFields | FromSpareFields
KINDS: dict[str, type[AnyFields]] = {
    "red_black": RedBlackFields,
    "rolling_restart": RollingRestartFields,
    "to_spare": ToSpareFields,
    "from_spare": FromSpareFields,
    "versioned": VersionedFields,
}


class RolloutFields(RootModel[AnyFields]):
    """What POST /rollouts takes, by `kind`."""


def read(fields: Mapping[str, Any]) -> AnyFields:
    """Raises Refused with every problem."""
    kind = fields.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise f.refused([Problem("/kind", "kind", f"give one of {', '.join(KINDS)}")])
    return f.read(KINDS[kind], fields)
