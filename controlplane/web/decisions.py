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
    "count_arrival": _("note the arrival"),
    "take_quota": _("take quota"),
    "serve": _("serve"),
}
# What a gateway weighs, by the name in the REST call. Others keep that name.
NUMBERS = {
    "prompt_tokens": _("Prompt tokens"),
    "max_tokens": _("Output tokens, at most"),
    "output_tokens": _("Output tokens"),
    "sequences": _("Sequences"),
    "asked": _("Asked for"),
    "left": _("Left of it"),
    "running": _("Running"),
    "limit": _("Limit"),
    "kv_tokens": _("KV cache (tokens)"),
    "retry_after_ms": _("Try again after"),
    "queue_ms": _("Waited"),
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
