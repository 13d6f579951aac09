"""The configuration as requests read it: one immutable view a revision, swapped whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from policy.adapters import serves
from policy.names import may_call, model_called
from policy.routing import in_order, routes_for
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
    # By model: the rules as they hold for it, of those that were asked for.
    _routes_by_model: dict[str, Mapping[str, Route]] = field(default_factory=dict, repr=False, compare=False)

    def routes_for(self, model: str) -> Mapping[str, Route]:
        """The rules as they hold for requests for this model, in the order in which they are tried."""
        found = self._routes_by_model.get(model)
        if found is None:
            found = routes_for(self.routes, model, self.snapshot.models[model], self.snapshot.pools)
            self._routes_by_model[model] = found
        return found

    def model_called(self, name: str, tenant: Tenant) -> str:
        """The model that a client's name for it stands for: where its tenant is pinned, that."""
        return model_called(name, tenant, self.snapshot.aliases)

    def models_for(self, tenant: Tenant) -> Iterator[str]:
        """What the tenant may call, by name: models that some pool serves, and their aliases."""
        served = self._served
        models = {name for name in served if may_call(tenant, name, name)}
        aliases = {
            name
            for name in self.snapshot.aliases
            if (model := self.model_called(name, tenant)) in served and may_call(tenant, name, model)
        }
        return iter(sorted(models | aliases))

    @property
    def _served(self) -> set[str]:
        held = {adapter for pool in self.snapshot.pools.values() for adapter in pool.adapters}
        adapted = {name for name, model in self.snapshot.models.items() if model.adapter in held}
        return {pool.model for pool in self.snapshot.pools.values()} | adapted

    def pools_of(self, model: str) -> list[str]:
        """The pools that serve the model, as their own or as an adapter of it."""
        row = self.snapshot.models[model]
        return [name for name, pool in self.snapshot.pools.items() if serves(pool, model, row)]

    def is_served_by_vllm_alone(self, model: str) -> bool:
        """Whether each engine of the model, if it has any, is vLLM."""
        pools = self.pools_of(model)
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
    routes = in_order(snapshot.routes)
    return View(
        revision=revision,
        snapshot=snapshot,
        routes=MappingProxyType(routes),
        engines_of=MappingProxyType({pool: tuple(names) for pool, names in engines.items()}),
        overrides_of=MappingProxyType({subject: tuple(rows) for subject, rows in overrides.items()}),
        revision_header=(b"x-headworks-revision", b"%d" % revision),
    )
