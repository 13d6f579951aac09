"""How long requests are, from what people know of it: a mean, percentiles, a histogram, or gateways' counts.

Lengths end as counts by bucket (wire/sketches.py), as measured ones come. Source: seed 1, section 2: fixed lengths hide
the tail that preempts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from statistics import NormalDist

from policy.capacity import Lengths, longest_of, mean_of
from wire.sketches import bucket_of, middle_of

# Parts of equal share into which a curve is cut.
PARTS = 1000
_NORMAL = NormalDist()
MEDIAN_PERMILLE, WHOLE_PERMILLE = 500, 1000


def fixed(tokens: int) -> dict[int, int]:
    """All of one length."""
    return {bucket_of(tokens): 1}


def histogram(counts: Mapping[int, int]) -> dict[int, int]:
    """From length → how many."""
    made: dict[int, int] = {}
    for length, count in counts.items():
        made[bucket_of(length)] = made.get(bucket_of(length), 0) + count
    return made


def from_percentiles(points: Mapping[int, int]) -> dict[int, int]:
    """A curve through per mille → length, log-normal between two of them and beyond the ends.

    Raises: ValueError for fewer than two points, or lengths that shrink.
    """
    placed = sorted(points.items())
    if len(placed) < 2:
        raise ValueError("give two percentiles at least, such as p50 and p95")
    if any(low > high for (_, low), (_, high) in itertools.pairwise(placed)):
        raise ValueError("a higher percentile cannot be shorter than a lower one")
    curve = [(_NORMAL.inv_cdf(share / WHOLE_PERMILLE), math.log(max(1, length))) for share, length in placed]
    return _cut(curve)


def from_mean(mean: float, permille: int, length: int) -> dict[int, int]:
    """A log-normal of this mean, of which `permille` are not longer than `length`.

    Raises: ValueError where there is none: a mean far below a percentile belongs to another form.
    """
    z = _NORMAL.inv_cdf(permille / WHOLE_PERMILLE)
    # ln(length) = mu + z·sigma and ln(mean) = mu + sigma²/2; of the two sigma the smaller that is not below 0.
    root = z * z - 2 * math.log(length / mean)
    if permille == MEDIAN_PERMILLE:
        if length > mean:
            raise ValueError("p50 must not be above the mean; give more percentiles or a histogram instead")
        sigma = math.sqrt(root)
    elif root < 0 or length < mean:
        most = math.exp(z * z / 2)
        raise ValueError(
            f"the percentile must be from 1 to {most:.1f} times the mean; give more percentiles or a histogram instead"
        )
    else:
        sigma = z - math.sqrt(root)
    mu = math.log(mean) - sigma * sigma / 2
    return _cut([(0.0, mu), (1.0, mu + sigma)])


def _cut(curve: list[tuple[float, float]]) -> dict[int, int]:
    """Counts of PARTS lengths from a curve over the normal's z, straight between its points and beyond its ends."""
    counts: dict[int, int] = {}
    segment = 0
    for part in range(PARTS):
        z = _NORMAL.inv_cdf((part + 0.5) / PARTS)
        while segment < len(curve) - 2 and z > curve[segment + 1][0]:
            segment += 1
        (z0, y0), (z1, y1) = curve[segment], curve[segment + 1]
        log_length = y0 + (y1 - y0) * (z - z0) / (z1 - z0)
        bucket = bucket_of(max(1, round(math.exp(min(log_length, 40.0)))))
        counts[bucket] = counts.get(bucket, 0) + 1
    return counts


def contexts(prompts: Lengths, outputs: Lengths) -> dict[int, int]:
    """Whole contexts from prompts and outputs that were counted apart, the longest taken to go with the longest.

    That way the sum spreads most, so that what is derived from it errs on the safe side. The mean is exact in any.
    Raises: ValueError where one of them is empty.
    """
    rows = _shares(prompts), _shares(outputs)
    made: dict[int, int] = {}
    at = [0, 0]
    left = [rows[0][0][1], rows[1][0][1]]
    while True:
        step = min(left)
        bucket = bucket_of(rows[0][at[0]][0] + rows[1][at[1]][0])
        made[bucket] = made.get(bucket, 0) + step
        for side in (0, 1):
            left[side] -= step
            if not left[side]:
                at[side] += 1
                if at[side] == len(rows[side]):
                    return made
                left[side] = rows[side][at[side]][1]


def _shares(lengths: Lengths) -> list[tuple[int, int]]:
    """(length, parts of PARTS²) in order; they add up to PARTS² whatever was counted."""
    total = sum(lengths.values())
    if not total:
        raise ValueError("no length has been seen")
    placed: list[tuple[int, int]] = []
    passed = taken = 0
    for bucket in sorted(lengths):
        passed += lengths[bucket]
        parts = passed * PARTS * PARTS // total - taken
        taken += parts
        if parts:
            # Two lengths at their buckets' longest would be rounded up twice.
            placed.append((middle_of(bucket), parts))
    return placed


def at_most(lengths: Lengths, tokens: int) -> dict[int, int]:
    """What an engine of this context lets in: longer ones end there."""
    made: dict[int, int] = {}
    for bucket, count in lengths.items():
        kept = bucket if longest_of(bucket) <= tokens else bucket_of(tokens)
        made[kept] = made.get(kept, 0) + count
    return made


def mean_tokens(lengths: Lengths) -> float:
    """Raises: ValueError where nothing was counted."""
    mean = mean_of(lengths)
    if mean is None:
        raise ValueError("no length has been seen")
    return mean
