"""What a lever can ask of engines: only what an agent would do, and never of the last engine of a pool."""

from __future__ import annotations

from collections.abc import Mapping

from controlplane.diagnosis.detector import Command, Fleet
from wire.acts import ACTIONS, Drain

_LIMIT_SECONDS_MAX = 3600


def may(fleet: Fleet, engine: str, action: str) -> bool:
    """Whether an agent would do it: the engine's kind has the action, and its node's own policy allows it."""
    row = fleet.engines.get(engine)
    if row is None or row["kind"] not in ACTIONS[action].kinds:
        return False
    node = fleet.nodes.get(row["node"] or "")
    return node is not None and action in node.get("allowed_acts", {}).get(engine, ())


def has_another(fleet: Fleet, engine: str) -> bool:
    """Whether its pool goes on without it."""
    row = fleet.engines.get(engine)
    pool = None if row is None else fleet.pools.get(row["pool"])
    return pool is not None and any(name != engine for name in pool.engines)


def drained_restart(
    fleet: Fleet, engine: str, arguments: Mapping[str, str | int | bool] | None = None, longest_seconds: float = 0
) -> tuple[Command, ...]:
    """Drain, then restart with these arguments; nothing where that is not to be had.

    `longest_seconds`: how long a request of its pool takes; the drain waits for twice as long, or its own default.
    """
    if not (has_another(fleet, engine) and may(fleet, engine, "drain") and may(fleet, engine, "restart")):
        return ()
    if arguments and fleet.engines[engine]["kind"] != "vllm":
        return ()
    limit_seconds = round(min(_LIMIT_SECONDS_MAX, max(Drain().limit_seconds, 2 * longest_seconds)))
    subject = f"engine/{engine}"
    return (
        Command(subject, "drain", {"limit_seconds": limit_seconds}),
        Command(subject, "restart", {"arguments": dict(arguments)} if arguments else {}),
    )


def may_on_node(fleet: Fleet, node: str, action: str) -> bool:
    """Whether the node's agent would do it on the node itself."""
    row = fleet.nodes.get(node)
    return row is not None and action in row.get("allowed_acts", {}).get("", ())
