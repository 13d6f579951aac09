"""Which tenants a change of the configuration touches, as a sentence for a review."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from django.db.models import Q
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from controlplane.configs.checks import load
from controlplane.configs.references import keys_by_section, references
from controlplane.fleet.models import Engine, Pool
from controlplane.tenants.models import Tenant
from controlplane.web.effects import listed, tenants_of, tenants_of_classes
from wire.canonical import Document, merge_patch

# What their entries say is needed, not their names alone.
_READ = ("keys", "engines", "overrides", "acts", "routes", "aliases")


@dataclass
class Touched:
    """Names of what a change is about: tenants themselves, and what any tenant's requests go through."""

    tenants: set[str] = field(default_factory=set)
    pools: set[str] = field(default_factory=set)
    classes: set[str] = field(default_factory=set)
    models: set[str] = field(default_factory=set)
    engines: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    all_pools: bool = False


def in_words(patch: Document) -> str:
    """Says whose limits, keys or routes a patch of the configuration changes, and who sent requests to what it changes.

    Where that is nobody, it says so. Many are counted, not named.
    """
    found = of_patch(patch)
    said = (tenants_in_words(found.tenants), tenants_of(found.pools), tenants_of_classes(found.classes))
    if any(said):
        return " ".join(filter(None, said))
    if found.pools or found.classes:
        return _("In the last hour no tenant sent a request there.")
    return _("No tenant is touched by it at once.")


def tenants_in_words(names: Collection[str]) -> str:
    """Empty where there are none."""
    if not names:
        return ""
    text = ngettext("It touches tenant %(names)s.", "It touches the tenants %(names)s.", len(names))
    return text % {"names": listed(sorted(names))}


def of_patch(patch: Document) -> Touched:
    """What is named by a patch's entries, as they stand and as it would make them."""
    found = Touched(
        tenants=set(patch.get("tenants", {})),
        pools=set(patch.get("pools", {})),
        classes=set(patch.get("priority_classes", {})),
        models=set(patch.get("models", {})),
        engines=set(patch.get("engines", {})),
        nodes=set(patch.get("nodes", {})),
    )
    entries = [(section, key) for section in _READ for key in patch.get(section, {})]
    before = load(entries)
    for section, key in entries:
        was, change = before.get((section, key)), patch[section][key]
        for content in (was, None if change is None else merge_patch(was or {}, change)):
            if content is not None:
                _take(found, section, content)
    _widen(found, list(patch.get("cache_policies", {})), list(patch.get("session_limits", {})))
    return found


def _take(found: Touched, section: str, content: Document) -> None:
    if section == "acts":
        # An act on a node without an engine is about all that it has.
        engine, node = content.get("engine"), content.get("node")
        found.engines |= {engine} if engine else set()
        found.nodes |= {node} if node and not engine else set()
        return
    named = keys_by_section(references(section, content))
    if section != "routes":
        found.tenants.update(named.get("tenants", ()))
        found.pools.update(named.get("pools", ()))
        found.models.update(named.get("models", ()))
        found.engines.update(named.get("engines", ()))
    elif "tenants" in named:
        # Nobody else's requests take it.
        found.tenants.update(named["tenants"])
    elif "pools" in named:
        found.pools.update(named["pools"])
    else:
        # It refuses what it matches, which would go to a pool otherwise.
        found.models.update(named.get("models", ()))
        found.all_pools |= "models" not in named


def _widen(found: Touched, cache_policies: list[str], session_limits: list[str]) -> None:
    """From what requests are served by to the pools and tenants that use it now."""
    if found.all_pools or found.models or cache_policies:
        # A route may match a model by an alias.
        named = Q(model__name__in=found.models) | Q(model__aliases__name__in=found.models)
        serving = Q() if found.all_pools else named | Q(model__cache_policy__in=cache_policies)
        found.pools.update(Pool.objects.filter(serving).values_list("name", flat=True))
    if found.engines or found.nodes:
        engines = Engine.objects.filter(Q(name__in=found.engines) | Q(node__name__in=found.nodes))
        found.pools.update(engines.values_list("pool__name", flat=True))
    if cache_policies or session_limits:
        naming = Q(cache_policy__name__in=cache_policies) | Q(session_limits__name__in=session_limits)
        found.tenants.update(Tenant.objects.filter(naming).values_list("name", flat=True))
