"""A route by size: long prompts to engines of their own, from where their lengths say so.

Source: seed 1, section 5; policy/sizes.py, which cuts where the mean wait behind others is shortest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.functional import Promise
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from controlplane.diagnosis.detector import Edit, Fleet, Lever, PoolFacts
from controlplane.diagnosis.detectors.measured import prompts_of
from policy.sizes import best_cut
from wire.canonical import Document

_NAME_MAX = 63
_WHOLE_PERMILLE = 1000
# A wait that is shortened by less is within what lengths are known to.
_GAIN_MAX_RATIO = 0.9


def size_route(facts: PoolFacts, fleet: Fleet) -> Lever | None:
    """Long prompts of this pool to another of the same model; advice where there is no other. None: nothing is gained.

    The rule matches what the one does that leads to this pool now, and goes before it.
    """
    prompts = prompts_of(facts)
    cut = None if prompts is None else best_cut(prompts, 2)
    edge = None if cut is None else cut.classes[0].max_prompt_tokens
    if cut is None or edge is None or cut.wait_ratio > _GAIN_MAX_RATIO:
        return None
    why = format_lazy(
        _(
            "Cut there, by the measured lengths, the mean wait behind others is {ratio:.0%} of what it is now; "
            "{share:.0%} of the requests are longer."
        ),
        ratio=cut.wait_ratio, share=cut.classes[1].requests / sum(each.requests for each in cut.classes),
    )  # fmt: skip
    return route_from(facts, fleet, edge, why)


def route_from(facts: PoolFacts, fleet: Fleet, edge: int, why: Promise) -> Lever:
    """Prompts of `edge` tokens and more to another pool of the model; advice where there is none."""
    title = format_lazy(_("Prompts of {edge} tokens and more to engines of their own"), edge=edge)
    edit = _edit(facts, fleet, edge)
    if edit is None:
        advice = _("Give some engines a pool of the same model for long work, then lead long prompts there by a route.")
        return Lever("size_route", title, why, advice=advice)
    return Lever("size_route", title, why, edits=(edit,))


def _edit(facts: PoolFacts, fleet: Fleet, edge: int) -> Edit | None:
    name, target = facts.row["name"], _other_pool(facts, fleet)
    leading = _leading_route(name, fleet)
    if target is None or leading is None:
        return None
    match: dict[str, Any] = {key: value for key, value in leading["match"].items() if value is not None}
    longest = match.get("max_prompt_tokens")
    if match.get("min_prompt_tokens", 0) >= edge or (longest is not None and longest <= edge):
        return None
    match = {"models": [facts.row["model"]], **match, "min_prompt_tokens": edge}
    route = f"size-{name}"[:_NAME_MAX]
    fields = {
        "order": max(0, leading["order"] - 1),
        "match": match,
        "pools": {target: _WHOLE_PERMILLE},
        "fallbacks": {name: 0},
    }
    if any(row["name"] == route for row in fleet.routes):
        return Edit("routes", route, fields)
    # Rules of one order are tried by name.
    if leading["order"] == 0 and route > leading["name"]:
        return None
    return Edit("routes", route, fields, create=True)


def _other_pool(facts: PoolFacts, fleet: Fleet) -> str | None:
    """One with engines, for long work where there is one."""
    own = facts.row
    others = [
        (other.row["work"] != "long", name)
        for name, other in fleet.pools.items()
        if name != own["name"] and other.row["model"] == own["model"] and other.engines
        and other.row["work"] not in ("embedding", "rerank")
    ]  # fmt: skip
    return min(others)[1] if others else None


def _leading_route(pool: str, fleet: Fleet) -> Document | None:
    """The first rule that leads to the pool and is none of ours."""
    leading = [
        (row["order"], row["name"], row)
        for row in fleet.routes
        if pool in (row["pools"] or {}) and row["cascade"] is None and not _is_own(row)
    ]
    return min(leading, key=lambda each: each[:2])[2] if leading else None


def _is_own(row: Mapping[str, Any]) -> bool:
    return str(row["name"]).startswith("size-")
