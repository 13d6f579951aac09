"""Levers that an engine takes at its start alone: what the pool desires, to be rolled out engine by engine."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from django.utils.translation import gettext_lazy as _

from controlplane.diagnosis.detector import Edit, Fleet, PoolFacts
from controlplane.diagnosis.detectors.measured import engines_of
from wire.engine_arguments import whole_of

_ARGUMENTS_MAX = 64
_VLLM = "vllm"
ROLL = _(
    "Engines take it at their next start: roll it out engine by engine (drain, restart, put back), as a rollout does."
)


def is_vllm(facts: PoolFacts, fleet: Fleet) -> bool:
    """Whether its engines all take vLLM's arguments."""
    engines = engines_of(facts, fleet)
    return bool(engines) and all(row["kind"] == _VLLM for row in engines.values())


def desired(
    facts: PoolFacts, arguments: Mapping[str, str | int | bool], without: Collection[str] = ()
) -> tuple[Edit, ...]:
    """The pool's engine arguments with these, and without others that would say something else.

    None where they are so already, or where there is no room for more.
    """
    now = facts.row["engine_arguments"]
    then = {**{name: value for name, value in now.items() if name not in without}, **arguments}
    if then == now or len(then) > _ARGUMENTS_MAX:
        return ()
    return (Edit("pools", facts.row["name"], {"engine_arguments": then}),)


def started_with(facts: PoolFacts, fleet: Fleet, name: str) -> int | None:
    """The largest whole number that one of its engines was started with, else what the pool desires; None: neither."""
    told = [whole_of(name, row.get("arguments") or {}) for row in engines_of(facts, fleet).values()]
    known = [each for each in told if each is not None]
    desired_now = whole_of(name, {key: str(value) for key, value in facts.row["engine_arguments"].items()})
    return max(known) if known else desired_now
