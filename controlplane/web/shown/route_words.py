"""Routing rules in words: whom a rule is for, where it leads, and why it was passed over. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from controlplane.web.templatetags.headworks import grouped

# Of the names in a condition; a rule may be for thousands of tenants.
NAMED_MAX = 5
# Why the answer of a cascade's small model is not good enough, by the name in the REST call.
ESCALATIONS = {
    "engine_failed": gettext_lazy("its engine fails"),
    "length": gettext_lazy("it is cut at max_tokens"),
    "empty": gettext_lazy("it is empty"),
    "invalid_json": gettext_lazy("it is no valid JSON where JSON was asked for"),
    "refusal": gettext_lazy("it declines to answer"),
    "low_confidence": gettext_lazy("its tokens are unlikely by its own judgement"),
}
_NOT_NAMED = re.compile(r"(model|tenant|priority class) (['\"])(.*)\2 is not one of (.*)", re.DOTALL)
_OUT_OF_RANGE = re.compile(r"(prompt_tokens|max_tokens) (\d+) is (below|not below) (\d+)")
_UNSERVED = re.compile(r"none of its pools serves model (['\"])(.*)\1", re.DOTALL)


class Led(NamedTuple):
    """A pool of a rule: what part of its requests it is to get, in percent."""

    pool: str
    percent: float


class Way(NamedTuple):
    """Where a rule leads. `reject`: the message of its refusal; `small`: the pool of a cascade, asked first."""

    pools: list[Led]
    fallbacks: list[str]
    reject: str
    small: str
    escalate_on: list[str]


def conditions(match: Mapping[str, Any]) -> list[str]:
    """What must hold of a request, a phrase each; nothing where every request is meant. `match`: its public form."""
    said = [
        _("for %(names)s") % {"names": named(match["models"])} if match["models"] is not None else "",
        _("from %(names)s") % {"names": named(match["tenants"])} if match["tenants"] is not None else "",
        _("of class %(names)s") % {"names": named(match["priority_classes"])}
        if match["priority_classes"] is not None
        else "",
        _sized(_("prompt"), match["min_prompt_tokens"], match["max_prompt_tokens"]),
        _sized("max_tokens", match["min_max_tokens"], match["max_max_tokens"]),
    ]
    return [phrase for phrase in said if phrase]


def named(names: list[str]) -> str:
    """The first few, and how many more there are."""
    if not names:
        return _("nobody")
    if len(names) == 1:
        return names[0]
    more = len(names) - NAMED_MAX
    if more > 0:
        shown = {"names": ", ".join(names[:NAMED_MAX]), "count": grouped(more)}
        return ngettext("%(names)s or %(count)s other", "%(names)s or %(count)s others", more) % shown
    return _("%(names)s or %(last)s") % {"names": ", ".join(names[:-1]), "last": names[-1]}


def _sized(what: str, low: int | None, high: int | None) -> str:
    """`low` inclusive, `high` exclusive."""
    shown = {"what": what, "low": grouped(low), "high": grouped(high)}
    if low is not None and high is not None:
        return _("%(what)s of %(low)s to below %(high)s tokens") % shown
    if low is not None:
        return _("%(what)s of %(low)s tokens and more") % shown
    return _("%(what)s below %(high)s tokens") % shown if high is not None else ""


def way(route: Mapping[str, Any]) -> Way:
    """Where a rule leads, of its public form: its heaviest pool first, fallbacks in their order."""
    pools, fallbacks, cascade = route["pools"] or {}, route["fallbacks"] or {}, route["cascade"]
    led = [Led(pool, weight / 10) for pool, weight in sorted(pools.items(), key=lambda item: (-item[1], item[0]))]
    return Way(
        pools=led,
        fallbacks=sorted(fallbacks, key=lambda pool: (fallbacks[pool], pool)),
        reject=route["reject"] or "",
        small=cascade["pool"] if cascade else "",
        escalate_on=escalations(cascade["escalate_on"]) if cascade else [],
    )


def escalations(reasons: list[str]) -> list[str]:
    return [str(ESCALATIONS.get(reason, reason)) for reason in reasons]


def mismatch_words(mismatch: str) -> str:
    """Why a rule was passed over, as `policy.routing` says it, in the reader's language."""
    if found := _NOT_NAMED.fullmatch(mismatch):
        what = {"model": _("the model"), "tenant": _("the tenant"), "priority class": _("the priority class")}[found[1]]
        return _("%(what)s %(name)s is not one of %(names)s") % {"what": what, "name": found[3], "names": found[4]}
    if found := _OUT_OF_RANGE.fullmatch(mismatch):
        what = _("the prompt's tokens") if found[1] == "prompt_tokens" else "max_tokens"
        shown = {"what": what, "value": grouped(int(found[2])), "bound": grouped(int(found[4]))}
        if found[3] == "below":
            return _("%(what)s, %(value)s, are below %(bound)s") % shown
        return _("%(what)s, %(value)s, are not below %(bound)s") % shown
    if found := _UNSERVED.fullmatch(mismatch):
        return _("none of its pools serves the model %(name)s") % {"name": found[2]}
    return mismatch
