"""What the fleet puts into the configuration."""

from __future__ import annotations

from controlplane.fleet.services import ALIASES, ENGINES, MODELS, NODES, POOLS, acts

SECTIONS = (
    MODELS.as_section(),
    ALIASES.as_section(),
    POOLS.as_section(),
    # Not restored: they hold reported facts, secrets and cordons, and a rollback must not lift a cordon.
    ENGINES.as_section(restorable=False, state=frozenset({"cordoned"})),
    NODES.as_section(restorable=False, written=False),
    acts.SECTION,
)
