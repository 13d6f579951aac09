"""Which of a fleet's nodes and engines a person looks for. Pure: lines in, a page of each out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.http import HttpRequest

from controlplane.web import listed
from controlplane.web.asked import text_in
from controlplane.web.listed import Listed, listed_of
from controlplane.web.shown.fleet import EngineLine, Fleet, NodeLine

_TEXT_MAX_CHARACTERS = 200
_FILTERS = ("health", "pool")


@dataclass(frozen=True)
class Wanted:
    """What an address asks for; empty is all. `text` is looked for in every name that a row shows.

    `nodes` and `engines`: which page of each; where one list goes on, the other stays where it is.
    """

    health: str
    pool: str
    text: str
    nodes: listed.Wanted
    engines: listed.Wanted

    @classmethod
    def of(cls, request: HttpRequest) -> Wanted:
        """From the parameters of an address. What makes no sense there is as good as not said."""
        health, pool = (text_in(request, name).strip()[:_TEXT_MAX_CHARACTERS].strip() for name in _FILTERS)
        nodes, engines = listed.Wanted.of(request), replace(listed.Wanted.of(request, "engines_"), text="")
        filters = tuple((name, value) for name, value in (("health", health), ("pool", pool)) if value)
        text = (("q", nodes.text),) if nodes.text else ()
        return cls(
            health,
            pool,
            nodes.text,
            replace(nodes, kept=(*filters, *_at(engines))),
            replace(engines, kept=(*filters, *text, *_at(nodes))),
        )

    @property
    def any(self) -> bool:
        return bool(self.health or self.pool or self.text)

    @property
    def query(self) -> str:
        """The same as an address has it, with its question mark; empty where all is wanted."""
        return self.nodes.query

    def wants_node(self, node: NodeLine) -> bool:
        if self.health and node.health != self.health:
            return False
        if self.pool and all(engine.pool != self.pool for engine in node.engines):
            return False
        row = node.row
        models = {gpu.model for gpu in node.gpus}
        engines = [name for engine in node.engines for name in (engine.name, engine.pool, engine.model)]
        versions = (row.agent_version, row.driver_version, row.cuda_version)
        return self._named([row.name, *versions, *models, *engines])

    def wants_engine(self, engine: EngineLine, nodes: frozenset[str]) -> bool:
        """`nodes`: those that are wanted by their health."""
        if self.health and engine.node not in nodes:
            return False
        if self.pool and engine.pool != self.pool:
            return False
        return self._named([engine.name, engine.node, engine.pool, engine.model, engine.kind_label, engine.version])

    def _named(self, names: Sequence[str]) -> bool:
        text = self.text.casefold()
        return not text or any(text in name.casefold() for name in names)


@dataclass(frozen=True)
class Shown:
    """What of a fleet is wanted. `pools`: of all of its engines."""

    wanted: Wanted
    nodes: Listed[NodeLine]
    engines: Listed[EngineLine]
    pools: Sequence[str]


def shown_of(fleet: Fleet, wanted: Wanted) -> Shown:
    """The page of nodes and the page of engines that `wanted` asks for; one behind the last is the last."""
    nodes = [node for node in fleet.nodes if wanted.wants_node(node)]
    healthy = frozenset(node.name for node in fleet.nodes if node.health == wanted.health)
    engines = [engine for engine in fleet.engines if wanted.wants_engine(engine, healthy)]
    pools = sorted({engine.pool for engine in fleet.engines})
    return Shown(wanted, listed_of(nodes, wanted.nodes), listed_of(engines, wanted.engines), pools)


def _at(wanted: listed.Wanted) -> tuple[tuple[str, str], ...]:
    return ((f"{wanted.prefix}page", str(wanted.page)),) if wanted.page > 1 else ()
