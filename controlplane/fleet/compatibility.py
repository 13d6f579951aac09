"""Whether engines may serve side by side, by the site's own rules: what agents told of them, held against the rows."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import Q, QuerySet

from controlplane.core import fields as f
from controlplane.fleet import models as rows
from controlplane.fleet.services.pools import POOLS
from controlplane.fleet.shapes import (
    CHAT_TEMPLATE,
    FRONTEND,
    KIND,
    MAX_LENGTH,
    PROBE,
    TOKENIZER,
    VERSION,
    VLLM,
    Finding,
    Rule,
    RuleForm,
    Shape,
    judge_shapes,
)
from wire.canonical import Document

__all__ = ["Finding", "judge", "judge_shapes", "of_pool", "shape_of", "stored_rules"]

# What each kind calls the longest sequence that it takes, the surest first. Source: each engine's options.
_LENGTH_ARGUMENTS = {
    "vllm": ("max_model_len", "model_config.max_model_len"),
    "triton": ("max_model_len",),
    "sglang": ("max_model_len", "context_length"),
    "tgi": ("max_total_tokens",),
    "llamacpp": ("n_ctx", "ctx_size"),
    "trtllm": ("max_seq_len",),
}


def judge(pool_names: Iterable[str], candidate_engines: Iterable[str] = ()) -> list[Finding]:
    """What the rules that are switched on have against the engines of these pools, what stops first.

    Of a pool those count that take work, and the `candidate_engines`, which are about to, each in its own pool, whether
    or not that is named. An engine or a pool that does not exist has nothing against it.
    """
    candidates, pools = list(candidate_engines), list(pool_names)
    found = _engines().filter(Q(pool__name__in=pools) | Q(pool__engines__name__in=candidates)).distinct()
    shapes = [shape_of(row) for row in found if row.name in candidates or not row.takes_no_work]
    return judge_shapes(shapes, stored_rules())


def of_pool(name: str) -> Document:
    """What is known of each engine of the pool, and what the rules have against those that take work.

    `may_serve`: nothing stops. Raises NotFound.
    """
    pool = POOLS.get(name)
    found = judge([pool.name])
    engines = _engines().filter(pool=pool).order_by("name")
    return {
        "pool": pool.name,
        "may_serve": not any(finding.stops for finding in found),
        "findings": [describe(finding) for finding in found],
        "engines": [
            {"name": row.name, "takes_work": not row.takes_no_work, "facts": dict(shape_of(row).facts)}
            for row in engines
        ],
    }


def describe(finding: Finding) -> Document:
    return {
        "rule": finding.rule,
        "state": finding.state,
        "stops": finding.stops,
        "message": finding.message,
        "engines": list(finding.subjects),
    }


def stored_rules() -> list[Rule]:
    """Those that are switched on."""
    return [
        Rule(row.name, f.read(RuleForm, row.rule), row.reason, row.stops)
        for row in rows.CompatibilityRule.objects.filter(enabled=True).order_by("name")
    ]


def shape_of(row: rows.Engine) -> Shape:
    """The engine as rules see it."""
    told = row.facts
    versions: dict[str, str] = told.get("versions", {})
    digests: dict[str, str] = told.get("digests", {})
    facts = {
        **{name: value for name, value in versions.items() if value},
        **{f"{PROBE}{name}": outcome for name, outcome in told.get("probes", {}).items()},
        **{name: digests[name] for name in (TOKENIZER, CHAT_TEMPLATE) if name in digests},
        KIND: row.kind,
    }
    if row.version:
        facts[VERSION] = row.version
        facts.update({FRONTEND: row.version} if row.kind == "triton" else {})
        facts.update({VLLM: row.version} if row.kind == "vllm" else {})
    if length := told.get("max_length_tokens") or _length(row.kind, told.get("arguments", {})):
        facts[MAX_LENGTH] = str(length)
    return Shape(row.name, row.pool.name, facts, _of_model(row.pool.model))


def _length(kind: str, arguments: dict[str, str]) -> str | None:
    values = (arguments.get(name, "") for name in _LENGTH_ARGUMENTS.get(kind, ()))
    return next((value for value in values if value.isdecimal()), None)


def _of_model(model: rows.Model) -> dict[str, str]:
    files = {TOKENIZER: model.tokenizer, CHAT_TEMPLATE: model.chat_template}
    return {
        **{fact: file.sha256 for fact, file in files.items() if file is not None},
        MAX_LENGTH: str(model.max_context_tokens),
    }


def _engines() -> QuerySet[rows.Engine]:
    # Only the hashes: an artifact's content is megabytes.
    files = ("pool__model__tokenizer", "pool__model__chat_template")
    contents = (f"{file}__content" for file in files)
    return rows.Engine.objects.select_related("pool__model", "node", *files).defer(*contents)
