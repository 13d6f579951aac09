"""How many sequences a KV budget carries at once, for a distribution of lengths and not only for its average.

Lengths come as counts by bucket, as gateways sketch them (wire/sketches.py); a bucket counts as its longest length.
Source: seed 1, "KV budget" and section 2: fixed lengths hide the heavy tail that preempts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from wire.sketches import bucket_of_share, lowest_of

# 95 % of a normal distribution lie below its mean and so many standard deviations.
_NORMAL_95 = 1.645
# Bucket → how many were of a length within.
Lengths = Mapping[int, int]


class Concurrency(NamedTuple):
    """Values for max_num_seqs, from bold to safe; 0 where not even one sequence fits.

    `on_average` ignores the spread: near it, about half of all full batches are too large. `for_share`: a full batch
    fits with at least the asked probability, whatever the form of the distribution. `worst_case`: it always fits.
    """

    on_average: int
    for_share: int
    worst_case: int


def derive_max_num_seqs(
    budget_bytes: int, lengths: Lengths, sequence_bytes: Callable[[int], int], share_permille: int
) -> Concurrency:
    """How many sequences, drawn from `lengths` independently, one budget carries.

    `lengths`: of whole contexts, prompt and output, each counted at its end; a running sequence has not grown to it
    yet, which leaves some room. `sequence_bytes`: context tokens → bytes (policy/kv.py). `share_permille`: at 1000 the
    share is the worst case. Raises: ValueError for empty `lengths`, since nothing can be derived from nothing.
    """
    total = sum(lengths.values())
    if total == 0:
        raise ValueError("no length has been seen")
    sizes = [(sequence_bytes(longest_of(bucket)), count) for bucket, count in lengths.items() if count]
    largest = max(size for size, _ in sizes)
    if largest == 0:
        raise ValueError("sequences that take nothing bound nothing")
    mean = sum(size * count for size, count in sizes) / total
    variance = sum((size - mean) ** 2 * count for size, count in sizes) / total
    worst_case = budget_bytes // largest
    for_share = worst_case
    if share_permille < 1000:
        for_share = max(worst_case, _within(budget_bytes, mean, variance, share_permille / 1000))
    return Concurrency(max(for_share, math.floor(budget_bytes / mean)), for_share, worst_case)


def _within(budget: float, mean: float, variance: float, share: float) -> int:
    """The largest n whose sum stays within `budget` with probability `share` by Cantelli's inequality.

    P(sum > n·mean + t) ≤ n·variance ÷ (n·variance + t²), so that n·mean + √(n·variance·share ÷ (1 - share)) ≤ budget:
    a quadratic in √n.
    """
    spread = math.sqrt(variance * share / (1 - share))
    root = 2 * budget / (math.sqrt(spread**2 + 4 * mean * budget) + spread)
    return math.floor(root**2)


def growing_within(filling: float, permille: int) -> int:
    """How many sequences stay within `permille` of a cache, where `filling` of them fill it on average.

    They grow evenly from next to nothing, each at its own stage, so that they differ by 1/√3 of their mean. Of many the
    sum is spread about normally: n + z·√(n/3) ≤ filling · permille ÷ 1000, z of 95 %: a quadratic in √n. At least 1.
    """
    spread = _NORMAL_95 / math.sqrt(3)
    root = (math.sqrt(spread**2 + 4 * filling * permille / 1000) - spread) / 2
    return max(1, math.floor(root**2))


def longest_of(bucket: int) -> int:
    """The largest length that falls into a bucket."""
    return lowest_of(bucket + 1) - 1


def longest_of_share(lengths: Lengths, permille: int) -> int | None:
    """The length that `permille` of all do not exceed, never too short; None where nothing was counted."""
    bucket = bucket_of_share(lengths, permille)
    return None if bucket is None else longest_of(bucket)


def context_of_share(prompts: Lengths, outputs: Lengths, permille: int) -> int | None:
    """A context, prompt and output together, that at least `permille` of requests do not exceed.

    Prompts and outputs are counted apart, and may go together in any way: each side is let exceed by half of what may
    (union bound). 1000 is the worst case. None where one of them was never seen.
    """
    each = (1000 + permille + 1) // 2
    prompt, output = longest_of_share(prompts, each), longest_of_share(outputs, each)
    return None if prompt is None or output is None else prompt + output


def mean_of(lengths: Lengths) -> float | None:
    """The mean length, each at the longest of its bucket; None where nothing was counted. Means add up."""
    total = sum(lengths.values())
    return sum(longest_of(bucket) * count for bucket, count in lengths.items()) / total if total else None


def sequences_that_fit(admissible_tokens: int, context_tokens: int) -> int:
    """How many sequences of one length there can be; 0 when not even one fits."""
    return admissible_tokens // context_tokens


def tokens_held(tokens_per_minute: int, mean_seconds: float) -> int:
    """Little's law for tokens: what a rate keeps alive on average when each stays `mean_seconds`; rounded up.

    Exact where `mean_seconds` is the mean over tokens. That over requests is too small where long ones stay longer.
    """
    return math.ceil(tokens_per_minute / 60 * mean_seconds)
