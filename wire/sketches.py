"""How long requests were, minute by minute: counts in buckets of a logarithmic scale, which add up exactly.

A scale of whole numbers, as HdrHistogram's: every power of two is cut into 16 equal parts, so that a bucket is at most
1/16 of its values wide, and a length read back from its middle is off by 1/32 (3.1 %) at most.
Source: G. Tene, HdrHistogram.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

from msgspec import Meta, Struct

from wire.snapshot import EpochMillis

# Tokens; a longer one counts as this.
LENGTH_MAX = 2**31 - 1
MINUTE_MS = 60_000
# Of one count in a minute; those of a whole body add up to less than 2**53.
COUNT_MAX = 2**31 - 1
_PART_BITS = 4
_EXACT_BITS = _PART_BITS + 1


def bucket_of(length: int) -> int:
    """The bucket that a length of 0 or more falls into; those below 32 have one each."""
    if length > LENGTH_MAX:
        length = LENGTH_MAX
    shift = length.bit_length() - _EXACT_BITS
    return length if shift <= 0 else (shift << _PART_BITS) + (length >> shift)


def lowest_of(bucket: int) -> int:
    """The smallest length that falls into the bucket."""
    shift = max(0, (bucket >> _PART_BITS) - 1)
    return (bucket - (shift << _PART_BITS)) << shift


def middle_of(bucket: int) -> int:
    """The length that stands for all of the bucket."""
    return (lowest_of(bucket) + lowest_of(bucket + 1) - 1) // 2


BUCKETS = bucket_of(LENGTH_MAX) + 1
_Bucket = Annotated[int, Meta(ge=0, lt=BUCKETS)]
# (bucket, how many), each bucket once.
Counts = Annotated[list[tuple[_Bucket, Annotated[int, Meta(ge=1, le=COUNT_MAX)]]], Meta(max_length=BUCKETS)]
SketchLabel = Annotated[str, Meta(min_length=1, max_length=63)]


class Sketch(Struct, frozen=True, omit_defaults=True, rename={"priority_class": "class"}):
    """`POST sketches`: what one gateway saw of one tenant, class and pool in the minute that began at `minute`.

    `arrivals`: requests that a route gave a pool, admitted or not; their `prompt_tokens` and `max_tokens` (of one
    sequence) count in the minute in which they came, `output_tokens` in the one in which the answer ended, under the
    pool that gave it. `minute` is Unix time in ms.
    """

    minute: Annotated[EpochMillis, Meta(multiple_of=MINUTE_MS)]
    tenant: SketchLabel = "unknown"
    priority_class: SketchLabel = "unknown"
    pool: SketchLabel = "unknown"
    arrivals: Annotated[int, Meta(ge=0, le=COUNT_MAX)] = 0
    prompt_tokens: Counts = []
    max_tokens: Counts = []
    output_tokens: Counts = []


def add(counts: dict[int, int], part: Iterable[tuple[int, int]]) -> None:
    """Add the counts of one sketch to those of others."""
    for bucket, count in part:
        counts[bucket] = counts.get(bucket, 0) + count


def added(*parts: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Counts of several sketches as those of one."""
    total: dict[int, int] = {}
    for part in parts:
        add(total, part)
    return total


def bucket_of_share(counts: Mapping[int, int], permille: int) -> int | None:
    """The bucket of the length that `permille` of all do not exceed (nearest rank); None where nothing was counted."""
    rank = max(1, -(-sum(counts.values()) * permille // 1000))
    passed = 0
    for bucket in sorted(counts):
        passed += counts[bucket]
        if passed >= rank:
            return bucket
    return None


def quantile(counts: Mapping[int, int], permille: int) -> int | None:
    """The length that `permille` of all do not exceed; None where nothing was counted."""
    bucket = bucket_of_share(counts, permille)
    return None if bucket is None else middle_of(bucket)
