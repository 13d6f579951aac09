"""What the pages of decisions show: the way of one request through its gateway's stages, and what was weighed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Literal, NamedTuple

from django.utils.translation import gettext_lazy as _

from controlplane.core.fields import from_epoch_ms
from controlplane.telemetry.decisions.log import stages_of
from controlplane.telemetry.models import Decision
from controlplane.web.templatetags.headworks import grouped, milliseconds
from wire.messages import ADMITTED

# In the order of a gateway's pipeline; what stands before it is refused at "receive".
STAGES = {
    "receive": _("receive"),
    "identify": _("identify"),
    "read": _("read"),
    "measure": _("count tokens"),
    "check_session": _("check the session"),
    "answer_from_cache": _("look into the cache"),
    "route": _("route"),
    "bound_output": _("bound the output"),
    "check_schema": _("check the schema"),
    "wait_for_room": _("wait for room beside others"),
    "plan_cascade": _("plan the cascade"),
    "count_arrival": _("note the arrival"),
    "take_quota": _("take quota"),
    "ask_small_first": _("ask the small model first"),
    "serve": _("serve"),
}
# What a gateway weighs, by the name in the REST call. Others keep that name.
NUMBERS = {
    "timeout_ms": _("Its client waits at most"),
    "body_bytes": _("Body (bytes)"),
    "pinned": _("Its tenant stays with a version (1: yes)"),
    "prompt_tokens": _("Prompt tokens"),
    "longest_tokens": _("Longest input (tokens)"),
    "max_context_tokens": _("The model's context (tokens)"),
    "schema_bytes": _("Schema (bytes)"),
    "schema_depth": _("Depth of the schema"),
    "schema_alternatives": _("Alternatives in one place"),
    "distinct_schemas": _("Different schemas within an hour"),
    "asked_max_tokens": _("Output tokens asked for (0: left open)"),
    "max_tokens": _("Output tokens, at most"),
    "output_tokens": _("Output tokens"),
    "tokens": _("Tokens to reserve"),
    "tokens_left": _("Tokens left"),
    "tpm_limit": _("Tokens per minute"),
    "requests_left": _("Requests left"),
    "rpm_limit": _("Requests per minute"),
    "sequences": _("Sequences"),
    "asked": _("Asked for"),
    "left": _("Left of it"),
    "running": _("Running"),
    "limit": _("Limit"),
    "max_parallel_requests": _("Sequences at once"),
    "counted_together": _("Counted by all gateways together (1: yes)"),
    "kv_tokens": _("KV cache (tokens)"),
    "room_tokens": _("Room at the engine (tokens)"),
    "engine_load_permille": _("Load of the engine (per mille)"),
    "queue_length": _("Waiting in the queue"),
    "queue_cap": _("Queue cap"),
    "queue_ttl_ms": _("May wait"),
    "late_by_ms": _("Its turn would be late by"),
    "waited_ms": _("Waited for a place"),
    "attempts": _("Engines that were asked"),
    "age_ms": _("Age of the answer"),
    "similarity_permille": _("Similarity (per mille)"),
    "bytes": _("Answer (bytes)"),
    "retry_after_ms": _("Try again after"),
    "queue_ms": _("Waited"),
    "depth": _("Depth of agents"),
    "repeated_calls": _("Same tool call running"),
    "used": _("Used before"),
    "used_calls": _("Model calls of the session before"),
    "used_tokens": _("Tokens of the session before"),
    "used_cost_micros": _("Cost of the session before (micros)"),
    "small_prompt_tokens": _("Prompt tokens of the small model"),
    "small_output_tokens": _("Output tokens of the small model"),
    "confidence_permille": _("Confidence (per mille)"),
    "retry": _("A retry of an earlier request"),
    "first_byte_ms": _("First byte after"),
    "took_ms": _("Last byte after"),
}


class Step(NamedTuple):
    """A stage, and whether the request passed it, ended there or did not get so far."""

    label: Any
    state: Literal["passed", "ended", "ahead"]


class Number(NamedTuple):
    label: Any
    value: str


class Stage(NamedTuple):
    """What one stage did: how long it took, and what it weighed."""

    label: Any
    took_ms: float
    numbers: list[Number]


class Told(NamedTuple):
    """A decision as its page shows it. `stages`: none of a gateway that did not tell."""

    row: Decision
    at: datetime
    admitted: bool
    steps: list[Step]
    numbers: list[Number]
    stages: list[Stage]


def told(row: Decision) -> Told:
    admitted = row.reason == ADMITTED
    way = [
        Stage(STAGES.get(note.stage, note.stage), note.took_us / 1000, list(_numbers(note.numbers)))
        for note in stages_of(row)
    ]
    return Told(row, from_epoch_ms(row.at_ms), admitted, steps(row.stage, admitted=admitted), numbers(row), way)


def stage_label(stage: str) -> str:
    return str(STAGES.get(stage, stage))


def steps(stage: str, *, admitted: bool) -> list[Step]:
    """The whole way, and how far it went; of a stage that a later version has, that one alone."""
    end: Literal["passed", "ended"] = "passed" if admitted else "ended"
    if stage not in STAGES:
        return [Step(stage, end)]
    names = list(STAGES)
    at = names.index(stage)
    return [
        *(Step(STAGES[name], "passed") for name in names[:at]),
        Step(STAGES[stage], end),
        *(Step(STAGES[name], "ahead") for name in names[at + 1 :]),
    ]


def numbers(row: Decision) -> list[Number]:
    """In the order of NUMBERS, then the others by name."""
    return list(_numbers(row.numbers))


def _numbers(given: dict[str, int]) -> Iterator[Number]:
    for name in [*(name for name in NUMBERS if name in given), *sorted(given.keys() - NUMBERS)]:
        shown: Callable[[int], str] = milliseconds if name.endswith("_ms") else grouped
        yield Number(NUMBERS.get(name, name), shown(given[name]))
