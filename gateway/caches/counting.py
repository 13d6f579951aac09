"""What is counted of caches: how often they answer, apart from how often that was right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from prometheus_client import Counter

from gateway.families import Families, Family

CacheKind = Literal["exact", "semantic"]


class CacheCounters:
    """Labels hold configured names alone. Hit rate: hits ÷ look-ups. Accuracy: 1 - wrong hits ÷ hits."""

    def __init__(self, families: Families) -> None:
        def counter(name: str, text: str, *labels: str) -> Family[Counter]:
            return families.counter(name, text, labels)

        of_cache = ("cache", "tenant", "model")
        self.lookups = counter("cache_lookups_total", "Requests that a cache was looked into for.", *of_cache)
        self.hits = counter("cache_hits_total", "Requests that a cache answered.", *of_cache)
        self.wrong_hits = counter(
            "cache_wrong_hits_total", "Answers of a cache that a client reported as wrong.", *of_cache
        )
        self.feedback = counter(
            "feedback_total",
            "Verdicts of clients on answers.",
            "verdict",
            *of_cache,
        )
        self.no_vector = counter(
            "cache_embedding_failures_total", "Questions that no embedding was to be had for.", "model", "reason"
        )
        self.feedback_dropped = families.total(
            "feedback_dropped_total", "Reports of clients that gave way to newer ones before they were sent."
        )
        self._bytes = families.gauge("cache_bytes", "Memory of kept answers.")
        self._answers = families.gauge("cache_answers", "Answers that are kept, and those that wait.", ("cache",))

    def watch(self, used_bytes: Callable[[], int], answers: Mapping[str, Callable[[], int]]) -> None:
        """What each page asks anew: the memory, and how many answers there are of each kind."""
        self._bytes.set_function(used_bytes)
        for cache, count in answers.items():
            self._answers.labels(cache).set_function(count)

    def looked(self, cache: CacheKind, tenant: str, model: str, *, hit: bool) -> None:
        self.lookups.labels(cache, tenant, model).inc()
        if hit:
            self.hits.labels(cache, tenant, model).inc()
