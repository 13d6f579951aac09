"""Engines beside what their pools say that they shall be: arguments they were started with, adapters they hold."""

from __future__ import annotations

from controlplane.fleet.models import Engine
from wire.canonical import Document
from wire.engine_arguments import differing as differing_arguments


def differing(engine: Engine) -> dict[str, tuple[str, str | None]]:
    """By argument: what the pool desires, and what the engine was started with instead.

    None there: the agent does not tell that it was started with this argument. Units, dashes and switches are read
    alike (wire.engine_arguments).
    """
    return differing_arguments(engine.pool.engine_arguments, engine.facts.get("arguments", {}))


def drift_of(engine: Engine) -> Document:
    """Of an engine as REST and pages show it."""
    held, problems = engine.facts.get("adapters", {}), engine.facts.get("adapter_problems", {})
    return {
        "differing_arguments": {
            name: {"desired": desired, "actual": actual} for name, (desired, actual) in differing(engine).items()
        },
        "adapters": held,
        "missing_adapters": {name: problems.get(name) for name in sorted(engine.pool.adapters.keys() - held.keys())},
    }
