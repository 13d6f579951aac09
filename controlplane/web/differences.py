"""What changed, as a person reads it: each object with its values before and after. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from controlplane.configs.publisher import ROLLBACK_NOUN
from controlplane.core import fields
from controlplane.core.changes import Change
from controlplane.web.labels import action_label
from controlplane.web.shown.spoken import spoken

# Objects are called the same in the audit and in the configuration, whose sections stand in the plural.
NOUN_OF_SECTION = {
    "acts": "act",
    "aliases": "alias",
    "cache_policies": "cache policy",
    "engines": "engine",
    "keys": "key",
    "models": "model",
    "nodes": "node",
    "overrides": "override",
    "pools": "pool",
    "priority_classes": "priority class",
    "routes": "route",
    "session_limits": "session limits",
    "tenants": "tenant",
}
# Their audit holds a whole rule file.
RULES_NOUN = "recording rules"
# There is but one of each, so its key says nothing.
_ONLY_ONE = {RULES_NOUN, "cordon policy", "remediation policy"}
# They name the object, which stands above its values.
NAMING_FIELDS = {"id", "name", "prefix", "created_at"}
# What a new row says of its making, which nobody asked for and the same form would say otherwise later.
_UNASKED = {
    "act": {"order", "state", "issued_at", "expires_at", "issued_by", "reason", "state_at", "took_ms"},
    "override": {"owner", "reason"},
    # What it changes is shown beside it.
    "stage": {"patch", "state", "owner", "reason", "started_at", "expires_at", "healthy_since", "said", "ended_at"},
    "rollout": {"state", "share_permille", "said", "cost", "owner", "reason", "begun_at", "spec"},
}
# Their names are made up, anew each time that the same form is tried.
_NAMED_BY_CHANCE = {"override"}
# A rollback or an import may change thousands of objects; a person reads some, the REST call beside it gives all.
OBJECTS_SHOWN = 200
# Few new or removed objects are spelt out; more are folded, each to its name.
SPELT_OUT_MAX = 3


@dataclass(frozen=True)
class Value:
    """One value that changed. `before` or `after` is None where there is none; `place` leads to it from its object."""

    place: tuple[str, ...]
    before: str | bool | None
    after: str | bool | None


@dataclass(frozen=True)
class Difference:
    """One object that changed; `action` is create, update or delete. A key is known by the beginning of its secret."""

    noun: str
    key: str
    action: str
    values: list[Value]


@dataclass(frozen=True)
class Shown:
    """As many as a page holds. `more` were left out; `folded`: new and removed objects show their values on demand."""

    objects: list[Difference]
    more: int
    folded: bool


def shortened(differences: list[Difference]) -> Shown:
    spelt_out = sum(each.action != "update" for each in differences)
    return Shown(differences[:OBJECTS_SHOWN], max(0, len(differences) - OBJECTS_SHOWN), spelt_out > SPELT_OUT_MAX)


def of_patch(
    patch: Mapping[str, Any], inverse: Mapping[str, Any], prefixes: Mapping[str, str] | None = None
) -> list[Difference]:
    """The objects that an RFC 7396 patch changes, given the patch that takes it back.

    `prefixes` has the beginnings of keys, by hash, where the patch does not say them.
    """
    return list(_objects(inverse, patch, prefixes or {}))


def of_changes(changes: Iterable[Change], *, whole: bool = False) -> list[Difference]:
    """The objects of changed rows, by their public form. Fields that are unset on both sides are left out.

    `whole`: also what a new row says of its making.

    So is the note that a rollback leaves in the audit: what it does are the other rows.
    """
    return [_of_change(change, whole) for change in changes if change.noun != ROLLBACK_NOUN]


def of_values(noun: str, key: str, before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> Difference:
    """One object by some of its fields; `before` None: it is new."""
    return Difference(noun, key, "create" if before is None else "update", _values(before, after))


def digest(changes: Iterable[Change]) -> str:
    """A short name for the values that a set of changes replaces.

    Where they are the same, the same form does the same; where they are not, the person is asked again. What comes
    after is left out, since a new row may hold the moment of its making.
    """
    replaced = [[change.noun, _known_key(change), change.before and _replaced(change)] for change in changes]
    return hashlib.sha256(json.dumps(replaced, sort_keys=True).encode()).hexdigest()[:32]


def _known_key(change: Change) -> str | None:
    """What is new and known by an id has it from no form: each time that it is tried, a database counts on."""
    by_id = str((change.after or {}).get("id")) == change.key
    made_anew = not change.before and (by_id or change.noun in _NAMED_BY_CHANCE)
    return None if made_anew else change.key


def _replaced(change: Change) -> dict[str, Any]:
    before, after = change.before or {}, change.after or {}
    return {field: before.get(field) for field in before.keys() | after.keys() if before.get(field) != after.get(field)}


def shown_key(noun: str, key: str, *forms: Mapping[str, Any] | None) -> str:
    """What people know an object by: its name, of a key its first characters, of an act what it does to what, of an
    override what it is on, of a delivery to whom and about what.

    Of what there is but one nothing.
    """
    if noun in _ONLY_ONE:
        return ""
    if noun == "act":
        act = next((form for form in forms if form and "action" in form), {})
        return f"{action_label(act.get('action', key[:8]))} {act.get('engine') or act.get('node') or ''}".strip()
    if noun == "delivery":
        sent = next((form for form in forms if form and "receiver" in form), None)
        return f"{sent['receiver']}: {spoken(sent.get('title'))}" if sent else key[:8]
    if noun == "override":
        forced = next((form for form in forms if form and "subject" in form), {})
        return " ".join(filter(None, (forced.get("subject_kind"), forced.get("subject")))) or key
    if noun != "key":
        return key
    prefix = next((form["prefix"] for form in forms if form and "prefix" in form), None)
    return f"{prefix or key[:8]}…"


def _of_change(change: Change, whole: bool) -> Difference:
    key = shown_key(change.noun, change.key, change.after, change.before)
    values = _values(*(_by_rule(side) if change.noun == RULES_NOUN else side for side in (change.before, change.after)))
    unasked = _UNASKED.get(change.noun, set()) if change.action == "create" and not whole else set()
    return Difference(change.noun, key, change.action, [value for value in values if value.place[0] not in unasked])


def _by_rule(document: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """A rule file as maps of what tells groups and rules apart, so that each is compared with itself."""
    return {"groups": {group["name"]: _group(group) for group in (document or {}).get("groups", ())}}


def _group(group: Mapping[str, Any]) -> dict[str, Any]:
    """A rule's name has colons, so that none is called as a field of the group."""
    interval = {"interval": group["interval"]} if "interval" in group else {}
    return {**interval, **{_rule_name(rule): rule["expr"] for rule in group["rules"]}}


def _rule_name(rule: Mapping[str, Any]) -> str:
    labels = ", ".join(f'{name}="{value}"' for name, value in sorted(rule.get("labels", {}).items()))
    return f"{rule['record']}{{{labels}}}" if labels else str(rule["record"])


def _objects(before: Mapping[str, Any], after: Mapping[str, Any], prefixes: Mapping[str, str]) -> Iterator[Difference]:
    """A null in a merge patch, and a key that is not in it, both say: nothing there."""
    for section in sorted(before.keys() | after.keys()):
        noun = NOUN_OF_SECTION.get(section, section)
        olds, news = before.get(section) or {}, after.get(section) or {}
        for key in sorted(olds.keys() | news.keys()):
            old, new = olds.get(key), news.get(key)
            known = {"prefix": prefixes[key]} if key in prefixes else None
            action = "create" if old is None else "delete" if new is None else "update"
            yield Difference(noun, shown_key(noun, key, new, old, known), action, _values(old, new))


def _values(before: Any, after: Any) -> list[Value]:
    return [
        Value(place, _shown(place, old), _shown(place, new))
        for place, old, new in _leaves(before, after, ())
        if place[0] not in NAMING_FIELDS
    ]


def _leaves(before: Any, after: Any, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    sides = [side for side in (before, after) if side is not None]
    if any(side and isinstance(side, dict) for side in sides) and all(isinstance(side, dict) for side in sides):
        old, new = before or {}, after or {}
        for key in sorted(old.keys() | new.keys()):
            yield from _leaves(old.get(key), new.get(key), (*place, key))
    elif place and json.dumps(before) != json.dumps(after):
        yield place, before, after


def _shown(place: tuple[str, ...], value: Any) -> str | bool | None:
    """A value as text: names joined, moments as ISO 8601, maps and other lists as JSON. None stays none, yes yes."""
    if value is None or isinstance(value, str | bool):
        return value
    if value in ([], {}):
        return _("none")
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    if place[0] == "schedule" and place[-1].endswith("_minute") and isinstance(value, int):
        return f"{value // 60:02}:{value % 60:02}"
    if place[-2:-1] == ("pools",) and isinstance(value, int):
        # The share of a rule's requests, as its form has it.
        return f"{value / 10:g} %"
    if place[-1].endswith("_at_ms") and isinstance(value, int):
        return fields.iso(fields.from_epoch_ms(value))
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
