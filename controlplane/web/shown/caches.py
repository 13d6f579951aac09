"""Caches as their page shows them: what policies allow, how often caches answer, and what engines need not compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.fleet.models import Model
from controlplane.tenants.models import CachePolicy, Tenant
from controlplane.web.listed import Listed, Some, Wanted, listed, named_by, some
from controlplane.web.measured import Board, Numbers, Question, fresh, in_last_hour

_BY = ("cache", "tenant", "model")
# A person reads no more; the metrics have all.
ROWS_SHOWN, NAMES_SHOWN = 100, 10
_MEBIBYTE = 1 << 20
_PREFIX = "headworks_engine_prefix_cache"


def _of_gateways(name: str) -> Question:
    return Question(in_last_hour(f"headworks_gateway_{name}_total", *_BY), _BY)


_USED = " + ".join(
    in_last_hour(f"headworks_gateway_{kind}_tokens_total", "tenant") for kind in ("prompt", "generation")
)
QUESTIONS = {
    **{name: _of_gateways(f"cache_{name}") for name in ("lookups", "hits", "wrong_hits")},
    # Of a request that an engine answered: so much a hit saves, about.
    "tokens_each": Question(
        f"({_USED}) / ({in_last_hour('headworks_gateway_e2e_seconds_count', 'tenant')} > 0)", ("tenant",)
    ),
    "answers": Question(f"sum by (cache) ({fresh('headworks_gateway_cache_answers')})", ("cache",)),
    "bytes": Question(f"sum({fresh('headworks_gateway_cache_bytes')})", ()),
    "prefix_queries": Question(in_last_hour(f"{_PREFIX}_queries_tokens_total", "pool"), ("pool",)),
    "prefix_hits": Question(in_last_hour(f"{_PREFIX}_hits_tokens_total", "pool"), ("pool",)),
}
board = Board("caches", QUESTIONS)


@dataclass(frozen=True)
class PolicyLine:
    """A cache policy, and who names it."""

    row: CachePolicy
    tenants: Some[str]
    models: Some[str]

    @property
    def similarity_percent(self) -> float | None:
        return self.row.semantic["similarity_permille"] / 10 if self.row.semantic else None


@dataclass(frozen=True)
class HitLine:
    """How one cache did for one tenant and model in the last hour.

    `tokens_saved` is an estimate, by what the tenant's answered requests took; None where none was answered.
    """

    cache: str
    tenant: str
    model: str
    lookups: int
    hits: int
    wrong: int
    tokens_saved: int | None

    @property
    def percent(self) -> float:
        return 100 * self.hits / self.lookups if self.lookups else 0.0

    @property
    def wrong_percent(self) -> float | None:
        return 100 * self.wrong / self.hits if self.hits else None


@dataclass(frozen=True)
class PrefixLine:
    """What a pool's engines found in their own prefix caches in the last hour, in prompt tokens."""

    pool: str
    tokens: int
    hits: int

    @property
    def percent(self) -> float:
        return 100 * self.hits / self.tokens


@dataclass(frozen=True)
class Caches:
    """`policies` are a page of them, `listed`; `answers` by cache and `kept_bytes` are in all gateways now.

    `missing`: why nothing measured is shown.
    """

    policies: list[PolicyLine]
    listed: Listed[CachePolicy]
    hits: Some[HitLine]
    prefixes: Some[PrefixLine]
    answers: dict[str, int]
    kept_bytes: float | None
    missing: str

    @property
    def kept_mebibytes(self) -> float | None:
        return None if self.kept_bytes is None else self.kept_bytes / _MEBIBYTE


def caches(wanted: Wanted) -> Caches:
    numbers = board.get()
    page = listed(CachePolicy.objects.filter(name__icontains=wanted.text).order_by("name"), wanted)
    hits, prefixes = some(hit_lines(numbers), ROWS_SHOWN), some(prefix_lines(numbers), ROWS_SHOWN)
    answers = {cache: round(count) for (cache,), count in sorted(numbers.all("answers").items())}
    return Caches(_lines(page.rows), page, hits, prefixes, answers, numbers.of("bytes"), numbers.missing)


def hit_lines(numbers: Numbers) -> list[HitLine]:
    """Those with the most look-ups first."""
    found = []
    for (cache, tenant, model), lookups in numbers.all("lookups").items():
        hits, wrong = (numbers.of(name, cache, tenant, model) or 0.0 for name in ("hits", "wrong_hits"))
        each = numbers.of("tokens_each", tenant)
        if round(lookups) > 0:
            # Rates are drawn out to the window's ends, each counter's by itself.
            answered = min(round(hits), round(lookups))
            saved = None if each is None else round(hits * each)
            found.append(HitLine(cache, tenant, model, round(lookups), answered, round(wrong), saved))
    return sorted(found, key=lambda line: (-line.lookups, line.tenant, line.model, line.cache))


def prefix_lines(numbers: Numbers) -> list[PrefixLine]:
    found = [
        PrefixLine(pool, round(tokens), min(round(numbers.of("prefix_hits", pool) or 0), round(tokens)))
        for (pool,), tokens in numbers.all("prefix_queries").items()
        if pool and round(tokens) > 0
    ]
    return sorted(found, key=lambda line: line.pool)


def _lines(policies: Sequence[CachePolicy]) -> list[PolicyLine]:
    names = [row.name for row in policies]
    tenants = named_by(Tenant.objects.filter(cache_policy__in=policies).values_list("cache_policy__name", "name"))
    models = named_by(Model.objects.filter(cache_policy__in=names).values_list("cache_policy", "name"))
    return [
        PolicyLine(row, some(tenants.get(row.name, []), NAMES_SHOWN), some(models.get(row.name, []), NAMES_SHOWN))
        for row in policies
    ]
