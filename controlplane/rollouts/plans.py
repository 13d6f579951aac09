"""From what is asked for to the steps of a rollout, and what they cost in GPUs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wire.canonical import Document

SECONDS_AN_HOUR = 3600


@dataclass(frozen=True)
class Planned:
    kind: str
    arguments: Document


def red_black(
    spec: Mapping[str, Any], new: Sequence[str], tell_capacity: Sequence[str], settle_seconds: int
) -> list[Planned]:
    """`settle_seconds`: how long a request may wait that knows of the old pool alone."""
    unjudged = {"go_on_unjudged": True} if spec["watch"]["go_on_unjudged"] else {}
    return [
        *_readied(spec, new, tell_capacity),
        Planned("shift", {"share_permille": 0, "for_seconds": settle_seconds}),
        *(Planned("shift", {**step, **unjudged}) for step in spec["steps"]),
        Planned("keep_warm", {"seconds": spec["keep_warm_seconds"]}),
        Planned("retire", {"how": spec["retire"]}),
    ]


def versioned(spec: Mapping[str, Any], new: Sequence[str], tell_capacity: Sequence[str]) -> list[Planned]:
    return [
        *_readied(spec, new, tell_capacity),
        Planned("put_back", {"engines": list(new)}),
        Planned("publish", {name: spec[name] for name in ("family", "version", "model")}),
    ]


def _readied(spec: Mapping[str, Any], new: Sequence[str], tell_capacity: Sequence[str]) -> list[Planned]:
    engines = list(new)
    return [
        Planned("gate", {"engines": engines}),
        Planned("start", {"engines": engines, "limit_seconds": spec["start_limit_seconds"]}),
        Planned("check", _checked(engines, tell_capacity, spec["check_limit_seconds"])),
        Planned("warm_up", {"engines": engines, **spec["warm_up"]}),
    ]


def _checked(engines: list[str], tell_capacity: Sequence[str], limit_seconds: int) -> Document:
    return {"engines": engines, "tell_capacity": list(tell_capacity), "limit_seconds": limit_seconds}


def rolling_restart(spec: Mapping[str, Any], engines: Sequence[str]) -> list[Planned]:
    """So many engines at a time; the next ones are touched when these are back in service. `engines`: in this order."""
    at_once = spec["max_unavailable"]
    groups = [list(engines[start : start + at_once]) for start in range(0, len(engines), at_once)]
    return [step for group in groups for step in _restarted(spec, group)]


def _restarted(spec: Mapping[str, Any], engines: list[str]) -> Iterator[Planned]:
    yield Planned("hold_out", {"engines": engines, "max_unavailable": spec["max_unavailable"]})
    yield Planned("drain", {"engines": engines, "limit_seconds": spec["drain_limit_seconds"]})
    limit_seconds = spec["restart_limit_seconds"]
    arguments = spec["arguments"]
    yield Planned("restart", {"engines": engines, "arguments": arguments, "limit_seconds": limit_seconds})
    verified = {"capacity_may_fall_percent": spec["capacity_may_fall_percent"]}
    yield Planned("verify", {"engines": engines, "limit_seconds": spec["check_limit_seconds"], **verified})
    yield Planned("put_back", {"engines": engines})


def to_spare(spec: Mapping[str, Any], engines: Sequence[str]) -> list[Planned]:
    names = list(engines)
    return [
        Planned("hold_out", {"engines": names}),
        Planned("drain", {"engines": names, "limit_seconds": spec["drain_limit_seconds"]}),
        Planned("sleep", {"engines": names, "level": spec["level"]}),
    ]


def from_spare(spec: Mapping[str, Any], engines: Sequence[str], held_by: Mapping[str, str]) -> list[Planned]:
    names = list(engines)
    return [
        Planned("start", {"engines": names, "limit_seconds": spec["start_limit_seconds"]}),
        Planned("check", _checked(names, [], spec["check_limit_seconds"])),
        Planned("warm_up", {"engines": names, **spec["warm_up"]}),
        Planned("put_back", {"engines": names, "held_by": dict(held_by)}),
    ]


def cost(steps: Sequence[Planned], old_gpus: int, new_gpus: int) -> Document:
    """GPUs in use at each step, and GPU-hours: what its planned times make, and at most, were every limit used up.

    What a step takes that has no time of its own, such as a start, is known as a limit alone.
    """
    told: list[dict[str, Any]] = []
    running = old_gpus
    for index, step in enumerate(steps):
        if step.kind == "start":
            running = old_gpus + new_gpus
        if step.kind == "retire" and step.arguments["how"] == "stop":
            running = new_gpus
        planned: int = step.arguments.get("for_seconds") or step.arguments.get("seconds") or 0
        at_most = max(planned, step.arguments.get("limit_seconds") or 0)
        told.append(
            {
                "index": index,
                "kind": step.kind,
                "gpus": running,
                "planned_seconds": planned,
                "limit_seconds": at_most,
                "gpu_hours": round(running * planned / SECONDS_AN_HOUR, 3),
                "gpu_hours_most": round(running * at_most / SECONDS_AN_HOUR, 3),
            }
        )
    return {
        "gpus_before": old_gpus,
        "gpus_most": max((step["gpus"] for step in told), default=old_gpus),
        "gpus_after": running,
        "gpu_hours": round(sum(step["gpu_hours"] for step in told), 3),
        "gpu_hours_most": round(sum(step["gpu_hours_most"] for step in told), 3),
        "steps": told,
    }
