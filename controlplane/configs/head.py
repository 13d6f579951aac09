"""One revision in memory: the whole configuration and the slices cut from it.

Immutable to its readers. The next head is derived from the patch and shares with the one before whatever the
patch does not touch: an unchanged slice is the same object, so "nothing to send" is an identity comparison.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import datetime

from controlplane.configs.slices import Decrypt, Slice, gateway_content, gateway_engine, node_content, slice_of
from wire.canonical import Document, merge_patch

_GATEWAY_BLIND = {"nodes", "acts"}
# Sections whose entries may be of a node, which alone is told of them.
_OF_NODES = ("engines", "acts")


@dataclass(frozen=True)
class Overlay:
    """What some targets (kind/name) get on top of a revision: the patch of a stage."""

    id: int
    targets: frozenset[str]
    patch: Document


def overlay_of(stored: Document | None) -> Overlay | None:
    """From its form in a revision's row."""
    return None if stored is None else Overlay(stored["id"], frozenset(stored["targets"]), stored["patch"])


class Head:
    """`content` is without the overlay, which only the slices of its targets have."""

    def __init__(
        self, number: int, content: Document, published_at: datetime, decrypt: Decrypt, stage: Overlay | None = None
    ) -> None:
        self.number, self.content, self.published_at, self.stage = number, content, published_at, stage
        self._decrypt = decrypt
        self._staged: Head | None = None
        self._lock = threading.Lock()
        self._gateway: Slice | None = None
        # Engine name → (entry of the whole, the same as gateways see it).
        self._opened: dict[str, tuple[Document, Document]] = {}
        # Node → section → its entries.
        self._by_node: dict[str, dict[str, Document]] | None = None
        self._nodes: dict[str, Slice] = {}

    def next(self, number: int, patch: Document, published_at: datetime, *, stage: Overlay | None = None) -> Head:
        """The head after a revision's patch. Slices that the patch cannot change are carried over."""
        head = Head(number, merge_patch(self.content, patch), published_at, self._decrypt, stage)
        # Heads that follow each other share what they have cut, and so the lock that guards it.
        head._lock = self._lock
        with self._lock:
            head._opened = self._opened
            if not patch.keys() - _GATEWAY_BLIND:
                head._gateway = self._gateway
            if not patch.keys() & {*_OF_NODES, "nodes", "pools"}:
                # Shared: both heads cut the same slices, whoever is asked first.
                head._by_node, head._nodes = self._by_node, self._nodes
            else:
                gone = self._nodes_changed(head, patch)
                head._nodes = {node: kept for node, kept in self._nodes.items() if node not in gone}
        return head

    def _nodes_changed(self, after: Head, patch: Document) -> set[str]:
        # No section is ever removed: of a section without entries an empty one is left.
        changed, pools = (set(patch.get(section, ())) for section in ("nodes", "pools"))
        for head in (self, after):
            entries = {section: head.content.get(section, {}) for section in _OF_NODES}
            touched = [
                entries[section][name]
                for section in _OF_NODES
                for name in patch.get(section, ())
                if name in entries[section]
            ]
            if pools:
                touched += [engine for engine in entries["engines"].values() if engine["pool"] in pools]
            changed.update(entry["node"] for entry in touched if "node" in entry)
        return changed

    def slice(self, kind: str, name: str) -> Slice:
        """What the target of this kind and name is told."""
        if self.is_staged(kind, name):
            return self._staged_head().slice(kind, name)
        with self._lock:
            return self._gateway_slice() if kind == "gateway" else self._node_slice(name)

    def is_staged(self, kind: str, name: str) -> bool:
        """Whether the target gets the overlay."""
        return self.stage is not None and f"{kind}/{name}" in self.stage.targets

    def _staged_head(self) -> Head:
        with self._lock:
            if self._staged is None:
                content = merge_patch(self.content, self.stage.patch if self.stage else {})
                self._staged = Head(self.number, content, self.published_at, self._decrypt)
            return self._staged

    def _gateway_slice(self) -> Slice:
        if self._gateway is None:
            opened = {}
            for name, engine in self.content.get("engines", {}).items():
                before, told = self._opened.get(name, (None, None))
                if before is not engine or told is None:
                    told = gateway_engine(engine, self._decrypt)
                opened[name] = (engine, told)
            self._opened = opened
            engines = {name: told for name, (_, told) in opened.items()}
            self._gateway = slice_of(gateway_content(self.content, engines))
        return self._gateway

    def _node_slice(self, name: str) -> Slice:
        if (known := self._nodes.get(name)) is not None:
            return known
        if self._by_node is None:
            self._by_node = {}
            for section in _OF_NODES:
                for key, entry in self.content.get(section, {}).items():
                    if "node" in entry:
                        self._by_node.setdefault(entry["node"], {}).setdefault(section, {})[key] = entry
        own = self._by_node.get(name, {})
        made = slice_of(node_content(name, self.content, own.get("engines", {}), own.get("acts", {})))
        self._nodes[name] = made
        return made
