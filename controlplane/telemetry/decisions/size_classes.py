"""Size classes that fit what gateways saw: an offer, of which nothing is applied."""

from __future__ import annotations

from collections.abc import Sequence

from controlplane.core import fields as f
from controlplane.fleet.models import Pool, Work
from controlplane.fleet.services import MODELS
from controlplane.telemetry.decisions.sketches import Span, lengths_of
from policy.sizes import (
    REQUESTS_MIN,
    WORK_SHARE_MIN_PERMILLE,
    Proposal,
    best_cut,
    output_bound,
    requests_missing,
    share_below,
)
from wire.canonical import Document
from wire.problems import Problem

CLASSES_MIN, CLASSES_MAX = 2, 3
NAMES = {2: ("short", "long"), 3: ("short", "medium", "long")}
# Between rules that a person numbered by hand, with room for more.
ROUTE_ORDER_STEP = 10
WHOLE_PERMILLE = 1000


def offer(model: str, span: Span, pools: Sequence[str]) -> Document:
    """How to cut the model's requests by size, from its pools' sketches, with the rules that would do it.

    `pools`: one for each class, for the shortest first; empty: two classes, by the work that the model's pools are for.
    Raises NotFound for another model, Refused for pools that do not serve it.
    """
    row = MODELS.get(model)
    serving = {pool.name: pool for pool in row.pools.all()}
    groups = _named(model, pools, serving) if pools else _by_work(serving)
    counts = lengths_of(span, serving)
    prompts, outputs = counts["prompt_tokens"], counts["max_tokens"]
    told = {"model": model, "requests": sum(prompts.values()), "requests_missing": requests_missing(prompts)}
    nothing = {
        **told,
        "wait_ratio": None,
        "max_max_tokens": None,
        "above_permille": None,
        "classes": [],
        "routes": None,
    }
    if told["requests_missing"]:
        says = f"fewer than {REQUESTS_MIN} requests were seen; {told['requests_missing']} more are needed"
        return {**nothing, "says": says}
    found = best_cut(prompts, len(groups))
    if found is None:
        says = (
            f"no cut into {len(groups)} leaves every class {WORK_SHARE_MIN_PERMILLE / 10:g} % of the work: "
            "fewer classes are enough"
        )
        return {**nothing, "says": says}
    bound = output_bound(outputs)
    above = None if bound is None else WHOLE_PERMILLE - share_below(outputs, bound)
    without = [name for name, group in zip(NAMES[len(groups)], groups, strict=True) if not group]
    return {
        **told,
        "says": _in_words(found, bound, above, without),
        "wait_ratio": round(found.wait_ratio, 3),
        "max_max_tokens": bound,
        "above_permille": above,
        "classes": _classes(found, groups),
        "routes": None if without else _routes(model, found, bound, groups),
    }


def _named(model: str, pools: Sequence[str], serving: dict[str, Pool]) -> list[list[str]]:
    problems = [
        Problem("/pool", "reference", f"pool {name!r} does not serve {model!r}")
        for name in pools
        if name not in serving
    ]
    if not CLASSES_MIN <= len(set(pools)) == len(pools) <= CLASSES_MAX:
        problems.append(Problem("/pool", "length", "give 2 or 3 different pools, that for the shortest requests first"))
    f.refuse_if(problems)
    return [[name] for name in pools]


def _by_work(serving: dict[str, Pool]) -> list[list[str]]:
    return [sorted(name for name, pool in serving.items() if pool.work == work) for work in (Work.SHORT, Work.LONG)]


def _classes(found: Proposal, groups: list[list[str]]) -> list[Document]:
    """Shares are by prompts alone: how many meet both bounds is not known, since outputs are counted apart."""
    requests = sum(each.requests for each in found.classes)
    work = sum(each.prompt_tokens for each in found.classes)
    return [
        {
            "name": name,
            "pools": group,
            "min_prompt_tokens": each.min_prompt_tokens,
            "max_prompt_tokens": each.max_prompt_tokens,
            "requests_permille": each.requests * WHOLE_PERMILLE // requests,
            "tokens_permille": each.prompt_tokens * WHOLE_PERMILLE // work,
            "wait_ratio": round(each.wait_ratio, 3),
        }
        for name, group, each in zip(NAMES[len(groups)], groups, found.classes, strict=True)
    ]


def _routes(model: str, found: Proposal, bound: int | None, groups: list[list[str]]) -> Document:
    """In the form of `routes` in the configuration's document and in the tester's question."""
    routes: Document = {}
    for number, (name, group, each) in enumerate(zip(NAMES[len(groups)], groups, found.classes, strict=True)):
        match: Document = {"models": [model]}
        if each.max_prompt_tokens is not None:
            match["max_prompt_tokens"] = each.max_prompt_tokens
            if bound is not None:
                match["max_max_tokens"] = bound
        routes[f"size-{name}"] = {
            "order": (number + 1) * ROUTE_ORDER_STEP,
            "match": match,
            "pools": _even_shares(group),
        }
    return routes


def _even_shares(pools: Sequence[str]) -> dict[str, int]:
    share, rest = divmod(WHOLE_PERMILLE, len(pools))
    return {pool: share + (number < rest) for number, pool in enumerate(pools)}


def _in_words(found: Proposal, bound: int | None, above: int | None, without: Sequence[str]) -> str:
    edges = " and ".join(str(each.max_prompt_tokens) for each in found.classes[:-1])
    parts = [f"cut at {edges} prompt tokens, the mean wait behind others is {found.wait_ratio:.0%} of what it is uncut"]
    if above is not None:
        parts.append(f"requests for {bound} tokens of answer or more, {above / 10:g} % of all, go with the longest")
    if without:
        parts.append(f"no pool of the model is for {' or '.join(without)} work: name one `pool` for each class")
    return "; ".join(parts)
