"""Which entries of the configuration name which others. Pure: what to load so that a change can be checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from wire.canonical import Document

# (section, key) of one entry.
EntryKey = tuple[str, str]
# What one entry was and is; None: it did not or does not exist.
Transition = tuple[Document | None, Document | None]

# Section → the sections whose entries may name one of its entries.
REFERRERS: dict[str, tuple[str, ...]] = {
    "models": ("tenants", "pools", "routes", "aliases", "cache_policies"),
    "aliases": ("tenants",),
    "priority_classes": ("tenants", "routes"),
    "session_limits": ("tenants",),
    "cache_policies": ("tenants", "models"),
    "tenants": ("keys", "routes"),
    "pools": ("engines", "routes", "overrides"),
    "engines": ("overrides",),
}


def references(section: str, content: Document) -> Iterator[EntryKey]:
    """The entries that one entry names. A malformed entry names nothing; its types are checked elsewhere."""
    if section == "tenants":
        # What a tenant may use is a model, or what an alias stands for.
        yield from _each("models", content.get("models"))
        yield from _each("aliases", content.get("models"))
        yield from _pins(content.get("pins"))
        yield from _each("priority_classes", content.get("priority_classes"))
        yield from _one("priority_classes", content.get("default_priority_class"))
        yield from _one("session_limits", content.get("session_limits"))
        yield from _one("cache_policies", content.get("cache_policy"))
    elif section == "cache_policies":
        semantic = content.get("semantic")
        yield from _one("models", semantic.get("embedding_model") if isinstance(semantic, dict) else None)
    elif section == "models":
        yield from _one("cache_policies", content.get("cache_policy"))
    elif section == "aliases":
        yield from _one("models", content.get("model"))
    elif section == "keys":
        yield from _one("tenants", content.get("tenant"))
    elif section == "pools":
        yield from _one("models", content.get("model"))
    elif section == "engines":
        yield from _one("pools", content.get("pool"))
    elif section == "routes":
        match = content.get("match")
        for field in ("models", "tenants", "priority_classes"):
            yield from _each(field, match.get(field) if isinstance(match, dict) else None)
        yield from _each("pools", content.get("pools"))
        yield from _each("pools", content.get("fallbacks"))
        cascade = content.get("cascade")
        yield from _one("pools", cascade.get("pool") if isinstance(cascade, dict) else None)
    elif section == "overrides":
        yield from _one("pools" if content.get("subject_kind") == "pool" else "engines", content.get("subject"))


def keys_by_section(entries: Iterable[EntryKey]) -> dict[str, list[str]]:
    """Section → the keys of its entries, in the order given."""
    keys: dict[str, list[str]] = {}
    for section, key in entries:
        keys.setdefault(section, []).append(key)
    return keys


def _one(section: str, name: object) -> Iterator[EntryKey]:
    if isinstance(name, str):
        yield section, name


def _pins(pins: object) -> Iterator[EntryKey]:
    if isinstance(pins, dict):
        # What is pinned may be called by an alias or by the name of a model.
        for name, model in pins.items():
            yield "aliases", name
            yield "models", name
            yield from _one("models", model)


def _each(section: str, names: object) -> Iterator[EntryKey]:
    if isinstance(names, dict):
        for name in names:
            yield section, name
