"""Rollouts as their pages show them: steps in words, and what one that is about to begin would do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from controlplane.fleet import compatibility
from controlplane.fleet.compatibility import Finding
from controlplane.fleet.models import Model
from controlplane.rollouts import standing
from controlplane.rollouts.models import Rollout
from controlplane.web.shown.quantities import lasted, percent
from wire.canonical import Document

# How the page calls the kinds of steps.
STEP_LABELS = {
    "gate": gettext_lazy("Gate"),
    "start": gettext_lazy("Start the engines"),
    "check": gettext_lazy("Check the engines"),
    "warm_up": gettext_lazy("Warm up"),
    "shift": gettext_lazy("Move traffic"),
    "keep_warm": gettext_lazy("Keep the old side warm"),
    "retire": gettext_lazy("Retire the old side"),
    "hold_out": gettext_lazy("Take out of service"),
    "drain": gettext_lazy("Drain"),
    "sleep": gettext_lazy("Put to sleep"),
    "restart": gettext_lazy("Restart"),
    "verify": gettext_lazy("Compare with before"),
    "put_back": gettext_lazy("Put back into service"),
    "publish": gettext_lazy("Publish the version"),
    "take_back": gettext_lazy("Take everything back"),
}
_RETIRES = {
    "stop": gettext_lazy("stopped: their GPUs are free"),
    "sleep": gettext_lazy("put to sleep: a warm spare"),
    "leave": gettext_lazy("left running, out of service"),
}
_ENGINES_NAMED = 4


def step_label(kind: str) -> Any:
    return STEP_LABELS.get(kind, kind)


def step_about(arguments: Mapping[str, Any]) -> str:
    """The share that a step moves, what becomes of the old side, or the engines that it is about."""
    share = arguments.get("share_permille")
    if share == 0:
        return _("each side takes what the other cannot")
    if share is not None:
        return _("%(percent)s on the new side") % {"percent": percent(share / 1000)}
    if "how" in arguments:
        return str(_RETIRES.get(arguments["how"], arguments["how"]))
    if "version" in arguments:
        return f"{arguments['family']} {arguments['version']}"
    return engines_in_words(arguments.get("engines", ()))


def engines_in_words(engines: Sequence[str]) -> str:
    more = len(engines) - _ENGINES_NAMED
    named = ", ".join(engines[:_ENGINES_NAMED])
    if more <= 0:
        return named
    return ngettext("%(names)s and %(count)d more", "%(names)s and %(count)d more", more) % {
        "names": named,
        "count": more,
    }


class PlannedStep(NamedTuple):
    """One step of a plan. `lasts`: as planned, or at most where only a limit is known."""

    number: int
    label: Any
    about: str
    lasts: str
    gpus: int


class Preview(NamedTuple):
    """What a rollout would do. `findings`: what the rules have against its engines, though it may begin."""

    plan: Document
    steps: list[PlannedStep]
    findings: list[Finding]
    engines: int
    files: Literal["none", "whole"]
    model: str


def preview_of(row: Rollout) -> Preview:
    """Of a rollout that was begun in a unit of work which keeps nothing."""
    plan = standing.with_steps(row)
    costs = {cost["index"]: cost for cost in row.cost["steps"]}
    steps = [
        PlannedStep(
            step["index"], step_label(step["kind"]), step_about(step["arguments"]), *_takes(costs[step["index"]])
        )
        for step in plan["steps"]
    ]
    side, engines = (row.new_pool or row.pool), (row.new_engines or row.engines)
    model = Model.objects.get(pools__name=side)
    return Preview(plan, steps, compatibility.judge([side], engines), len(engines), _files(model), model.name)


def _takes(cost: Mapping[str, Any]) -> tuple[str, int]:
    if cost["planned_seconds"]:
        return lasted(cost["planned_seconds"]), cost["gpus"]
    limit = cost["limit_seconds"]
    return (_("%(time)s at most") % {"time": lasted(limit)} if limit else "–"), cost["gpus"]


def _files(model: Model) -> Literal["none", "whole"]:
    """A rollout begins only where the files of a model with a manifest are whole."""
    return "none" if model.manifest_id is None or not model.files_folder else "whole"
