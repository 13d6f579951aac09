"""The configuration as requests read it: one immutable view a revision, swapped whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from msgspec import UNSET

from policy.routing import in_order
from wire.problems import Problem
from wire.snapshot import GatewaySnapshot, Override, Route, Snapshot, Tenant
from wire.snapshot_checks import SnapshotRefused


@dataclass(frozen=True, slots=True)
class View:
    """A snapshot with the look-ups that every request needs. A request keeps the view it began under."""

    revision: int
    snapshot: GatewaySnapshot
    routes: Mapping[str, Route]
    engines_of: Mapping[str, tuple[str, ...]]
    overrides_of: Mapping[tuple[str, str], tuple[Override, ...]]
    revision_header: tuple[bytes, bytes]

    def model_called(self, name: str) -> str:
        """The model that a client's name for it stands for."""
        alias = self.snapshot.aliases.get(name)
        return name if alias is None else alias.model

    def models_for(self, tenant: Tenant) -> Iterator[str]:
        """Models that the tenant may use and that some pool serves, and their aliases, by name."""
        served = {pool.model for pool in self.snapshot.pools.values()}
        allowed = served if tenant.models is UNSET else served & tenant.models.keys()
        aliases = {name for name, alias in self.snapshot.aliases.items() if alias.model in allowed}
        return iter(sorted(allowed | aliases))

    def is_served_by_vllm_alone(self, model: str) -> bool:
        """Whether each engine of the model, if it has any, is vLLM."""
        pools = [name for name, pool in self.snapshot.pools.items() if pool.model == model]
        return all(self.snapshot.engines[engine].kind == "vllm" for pool in pools for engine in self.engines_of[pool])

    def overrides(self, pool: str, engine: str) -> tuple[Override, ...]:
        """Overrides on the engine itself and on its pool, expired ones included."""
        return self.overrides_of.get(("pool", pool), ()) + self.overrides_of.get(("engine", engine), ())


def compile_view(snapshot: Snapshot, revision: int) -> View:
    """Raises: SnapshotRefused for a slice that is not a gateway's."""
    if not isinstance(snapshot, GatewaySnapshot):
        raise SnapshotRefused([Problem("/kind", "kind", "this target is a gateway; send a slice of kind 'gateway'")])
    engines: dict[str, list[str]] = {pool: [] for pool in snapshot.pools}
    for name in sorted(snapshot.engines):
        engines[snapshot.engines[name].pool].append(name)
    overrides: dict[tuple[str, str], list[Override]] = {}
    for override in snapshot.overrides.values():
        overrides.setdefault((override.subject_kind, override.subject), []).append(override)
    return View(
        revision=revision,
        snapshot=snapshot,
        routes=MappingProxyType(in_order(snapshot.routes)),
        engines_of=MappingProxyType({pool: tuple(names) for pool, names in engines.items()}),
        overrides_of=MappingProxyType({subject: tuple(rows) for subject, rows in overrides.items()}),
        revision_header=(b"x-headworks-revision", b"%d" % revision),
    )
