"""Which of a fleet's nodes and engines a person looks for. Pure: lines in, a page of them out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar
from urllib.parse import urlencode

from controlplane.web.shown.fleet import EngineLine, Fleet, NodeLine

T = TypeVar("T")
NODES_PER_PAGE, ENGINES_PER_PAGE = 50, 50
_TEXT_MAX_CHARACTERS = 200
_PAGE_MAX_DIGITS = 6


@dataclass(frozen=True)
class Wanted:
    """What an address asks for; empty is all. `text` is looked for in every name that a row shows."""

    health: str = ""
    pool: str = ""
    text: str = ""
    page: int = 1
    engines_page: int = 1

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> Wanted:
        """From the parameters of an address. What makes no sense there is as good as not said."""

        def words(name: str) -> str:
            given = parameters.get(name, "").strip()[:_TEXT_MAX_CHARACTERS]
            return given if given.isprintable() else ""

        def number(name: str) -> int:
            given = parameters.get(name, "")
            usable = given.isascii() and given.isdecimal() and len(given) <= _PAGE_MAX_DIGITS
            return max(1, int(given)) if usable else 1

        return cls(words("health"), words("pool"), words("q"), number("page"), number("engines_page"))

    @property
    def any(self) -> bool:
        return bool(self.health or self.pool or self.text)

    @property
    def query(self) -> str:
        """The same as an address has it."""
        names = {"health": self.health, "pool": self.pool, "q": self.text}
        pages = {"page": self.page, "engines_page": self.engines_page}
        return urlencode(
            {
                **{name: value for name, value in names.items() if value},
                **{name: at for name, at in pages.items() if at > 1},
            }
        )

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
class Page(Generic[T]):
    """Some rows of `found`; the addresses' queries of the pages beside it are empty where there are none."""

    rows: Sequence[T]
    found: int
    first: int
    before: str
    after: str

    @property
    def last(self) -> int:
        return self.first + len(self.rows) - 1

    @property
    def is_part(self) -> bool:
        return len(self.rows) < self.found


@dataclass(frozen=True)
class Shown:
    """What of a fleet is wanted."""

    wanted: Wanted
    nodes: Page[NodeLine]
    engines: Page[EngineLine]
    pools: Sequence[str]


def shown_of(fleet: Fleet, wanted: Wanted) -> Shown:
    """The page of nodes and the page of engines that `wanted` asks for; one behind the last is the last."""
    nodes = [node for node in fleet.nodes if wanted.wants_node(node)]
    healthy = frozenset(node.name for node in fleet.nodes if node.health == wanted.health)
    engines = [engine for engine in fleet.engines if wanted.wants_engine(engine, healthy)]
    pools = sorted({engine.pool for engine in fleet.engines} | ({wanted.pool} - {""}))
    return Shown(
        wanted,
        _page(nodes, wanted, "page", NODES_PER_PAGE),
        _page(engines, wanted, "engines_page", ENGINES_PER_PAGE),
        pools,
    )


def _page(rows: Sequence[T], wanted: Wanted, name: str, size: int) -> Page[T]:
    last = max(1, -(-len(rows) // size))
    at = min(getattr(wanted, name), last)
    start = (at - 1) * size
    before = f"?{replace(wanted, **{name: at - 1}).query}" if at > 1 else ""
    after = f"?{replace(wanted, **{name: at + 1}).query}" if at < last else ""
    return Page(rows[start : start + size], len(rows), start + 1, before, after)
