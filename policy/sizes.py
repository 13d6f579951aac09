"""Where to cut requests into size classes, by how long they were, so that long prompts hold up fewer short ones.

A long prompt holds up all that wait behind it (head-of-line blocking). At an engine that serves first come, first
served, at utilisation rho, the mean wait is rho ÷ (1 - rho) times the mean of what is left of the request that is being
served when another comes: E[X²] ÷ 2E[X] of the work X of one request (Pollaczek and Khinchine). Cut into classes with
engines of their own, in proportion to each class's work, rho stays what it was at every engine, and a request waits for
what is left of requests of its own class alone. The cut is chosen that makes the mean over all requests shortest; equal
utilisation of classes by size is SITA-E's.

Work is prompt tokens: the prefill is what holds up others, and an input is measured where an output is only bounded.
Sources: seed 1, section 5; L. Kleinrock, Queueing Systems I (M/G/1); M. Harchol-Balter, M. Crovella and C. Murta, "On
choosing a task assignment policy for a distributed server system" (1999); M. Harchol-Balter, Performance Modeling and
Design of Computer Systems (2013), chapter 24.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, combinations, pairwise
from typing import NamedTuple

from wire.sketches import bucket_of_share, lowest_of, middle_of

# Bucket → how many were of a length within (wire/sketches.py).
Lengths = Mapping[int, int]

# With so many a share of requests is known to ±3.1 percentage points, 19 times of 20: 1.96 × √(¼ ÷ 1000).
REQUESTS_MIN = 1000
# A class of less of the work is not worth engines of its own.
WORK_SHARE_MIN_PERMILLE = 50
# A short prompt that may be answered at greater length than so many of all are goes with the long ones: what it may
# hold of the KV cache is reserved.
OUTPUT_PERMILLE = 950


class SizeClass(NamedTuple):
    """Prompts of `min_prompt_tokens` (inclusive) to `max_prompt_tokens` (exclusive; None: of any length).

    `wait_ratio`: their mean wait after the cut by that of all before it, at the same utilisation.
    """

    min_prompt_tokens: int
    max_prompt_tokens: int | None
    requests: int
    prompt_tokens: int
    wait_ratio: float


class Proposal(NamedTuple):
    """`wait_ratio`: the mean wait of all requests after the cut by that before it; near 1 little is gained."""

    classes: tuple[SizeClass, ...]
    wait_ratio: float


class _Sums(NamedTuple):
    """Of all that are shorter than one edge: how many, their tokens, and the squares of these."""

    requests: int
    tokens: int
    squares: int


def requests_missing(lengths: Lengths) -> int:
    """How many more must be seen before a cut says anything; 0 where there are enough."""
    return max(0, REQUESTS_MIN - sum(lengths.values()))


def best_cut(lengths: Lengths, classes: int) -> Proposal | None:
    """The cut of prompt lengths into 2 or 3 classes with the shortest mean wait; None where none has enough work.

    Edges stand between buckets, of which each counts as its middle, so counts are exact and lengths within 3.2 %.
    Raises: ValueError for another number of classes.
    """
    if classes not in (2, 3):
        raise ValueError("requests are cut into 2 or 3 classes")
    buckets = sorted(bucket for bucket, count in lengths.items() if count)
    sums = [_Sums(0, 0, 0), *accumulate((_of(bucket, lengths[bucket]) for bucket in buckets), _plus)]
    whole, last = sums[-1], len(buckets)
    if whole.tokens == 0:
        return None
    least = whole.tokens * WORK_SHARE_MIN_PERMILLE / 1000
    found: tuple[float, tuple[int, ...]] | None = None
    for edges in combinations(range(1, last), classes - 1):
        parts = [_minus(sums[high], sums[low]) for low, high in zip((0, *edges), (*edges, last), strict=True)]
        if min(part.tokens for part in parts) < least:
            continue
        wait = sum(part.requests * _left_over(part) for part in parts) / whole.requests
        if found is None or wait < found[0]:
            found = wait, edges
    if found is None:
        return None
    wait, edges = found
    return Proposal(_classes(buckets, sums, edges), wait / _left_over(whole))


def output_bound(lengths: Lengths) -> int | None:
    """The max_tokens (exclusive) up to which short prompts stay short requests; None where that leaves nobody out."""
    last = bucket_of_share(lengths, OUTPUT_PERMILLE)
    above = [bucket for bucket, count in lengths.items() if count and last is not None and bucket > last]
    return lowest_of(min(above)) if above else None


def share_below(lengths: Lengths, bound: int | None) -> int:
    """How many of a thousand are below `bound`, an edge of buckets."""
    total = sum(lengths.values())
    if bound is None or total == 0:
        return 1000
    return sum(count for bucket, count in lengths.items() if lowest_of(bucket) < bound) * 1000 // total


def _of(bucket: int, count: int) -> _Sums:
    # Nothing is served without any work: an empty prompt counts as one token.
    length = max(1, middle_of(bucket))
    return _Sums(count, count * length, count * length * length)


def _plus(one: _Sums, other: _Sums) -> _Sums:
    return _Sums(one.requests + other.requests, one.tokens + other.tokens, one.squares + other.squares)


def _minus(one: _Sums, other: _Sums) -> _Sums:
    return _Sums(one.requests - other.requests, one.tokens - other.tokens, one.squares - other.squares)


def _left_over(part: _Sums) -> float:
    """Twice the mean work that is left of a request when another comes: E[X²] ÷ E[X]."""
    return part.squares / part.tokens


def _classes(buckets: Sequence[int], sums: Sequence[_Sums], edges: tuple[int, ...]) -> tuple[SizeClass, ...]:
    bounds = [None, *(lowest_of(buckets[edge]) for edge in edges), None]
    before = _left_over(sums[-1])
    found = []
    for number, (low, high) in enumerate(pairwise((0, *edges, len(buckets)))):
        part = _minus(sums[high], sums[low])
        shortest, longest = bounds[number] or 0, bounds[number + 1]
        found.append(SizeClass(shortest, longest, part.requests, part.tokens, _left_over(part) / before))
    return tuple(found)
