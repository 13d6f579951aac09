"""What an engine's metrics page says, in canonical names: its ranks put together. Pure.

"Not a number" and what cannot be true have no reading: never 0.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from wire.engine_pages.names import (
    AWAKE_STATE,
    CAPACITY_LABEL,
    COPY_LABELS,
    FINISH_REASONS,
    PART_LABELS,
    RANK_LABELS,
    RANK_METRICS,
)
from wire.engine_pages.scan import Line, NotMetrics, Source

# A name begins at a word's beginning: tried at each letter, a long word would take seconds.
LABEL = re.compile(rb'\b([a-zA-Z_]\w*+)[ \t]*+=[ \t]*+"((?:[^"\\]++|\\.)*+)"')
_WHOLE_NUMBER = re.compile("[0-9]{1,15}")
_MAX_WHOLE = 10**15
# Engines have up to 30. More would make series without end.
_BUCKETS_LIMIT = 100
# A share that a float rounds up is all; a larger one is a fault of the engine's counting.
_ALL = 1 + 1e-6
# A server has at most as many ranks as it has GPUs.
_RANK = re.compile("[0-9]{1,4}")
CAPACITY = "kv_cache_capacity_tokens"


class Reading(NamedTuple):
    """One number. `label`: `le` of a bucket or `reason` of a count, with its value; empty for none."""

    name: str
    label: tuple[str, str] | tuple[()]
    value: float


def readings(kind: str, lines: Iterable[Line]) -> list[Reading]:
    """The numbers of one page, ordered by the table of names. Raises: NotMetrics for buckets that are none."""
    by_metric: defaultdict[str, list[Line]] = defaultdict(list)
    for line in _multiplied(_without_copies(kind, lines)):
        by_metric[line.source.canonical].append(line)
    capacities = _capacities(kind, by_metric.pop(CAPACITY, []))
    found = [Reading(CAPACITY, (), float(sum(capacities.values())))] if capacities else []
    for name, samples in by_metric.items():
        if name.rpartition("_")[0] in by_metric:
            # Sum and count of a histogram of the same page.
            continue
        match samples[0].source.shape:
            case "histogram":
                found += _histogram(name, samples)
            case "finished":
                found += _finished(name, samples)
            case "usage":
                found += _single(name, _usage(kind, samples, capacities))
            case "awake":
                found += _awake(name, samples)
            case _:
                found += _single(name, math.fsum(line.value for line in samples))
    return found


def by_rank(kind: str, lines: Sequence[Line]) -> dict[str, list[Reading]]:
    """Of a page of several data-parallel ranks what tells of each rank apart; empty for a page of one.

    Of a histogram a rank has the count. A rank has a reading only of what its engine counts by rank.
    """
    ranked: defaultdict[str, list[Line]] = defaultdict(list)
    if kind not in RANK_LABELS or sum(line.source.canonical == "requests_running" for line in lines) < 2:
        return {}
    for line in lines:
        source = line.source
        if source.canonical in RANK_METRICS and source.part in ("", "count"):
            rank = _rank(kind, labels(line.labels))
            if _RANK.fullmatch(rank):
                ranked[rank].append(line._replace(source=_counted(source)))
    return {rank: readings(kind, of_it) for rank, of_it in ranked.items()} if len(ranked) > 1 else {}


@cache
def _counted(source: Source) -> Source:
    """Of a part of a histogram a counter of its own."""
    return replace(source, canonical=f"{source.canonical}_{source.part}", shape="counter") if source.part else source


def capacity_tokens(found: Iterable[Reading]) -> int | None:
    """The KV cache of the whole server; None where it does not say."""
    return next((int(reading.value) for reading in found if reading.name == CAPACITY), None)


def _single(name: str, value: float) -> list[Reading]:
    return [Reading(name, (), value)] if _counts(value) else []


def _counts(value: float) -> bool:
    return math.isfinite(value) and value >= 0


def labels(text: bytes) -> dict[str, str]:
    """The labels between the braces of a sample, escapes left as they are."""
    return {name.decode(): value.decode("utf-8", "replace") for name, value in LABEL.findall(text)}


def _without_copies(kind: str, lines: Iterable[Line]) -> Iterable[Line]:
    """One line of those that differ in copy labels alone, on every page the same one; no part of another line."""
    copy_labels: Collection[str] = COPY_LABELS.get(kind, ())
    part_label = PART_LABELS.get(kind, "")
    if not copy_labels and not part_label:
        return lines
    found: dict[tuple[object, ...], Line] = {}
    for line in lines:
        given = labels(line.labels)
        if given.get(part_label):
            continue
        rest = ((name, value) for name, value in given.items() if name not in copy_labels)
        identity = (line.source, *sorted(rest))
        found[identity] = min(line, found.get(identity, line), key=lambda each: each.labels)
    return found.values()


def _multiplied(lines: Iterable[Line]) -> Iterator[Line]:
    """Each line in the unit of its signal; none whose factor the page does not give, or gives in two ways."""
    waiting = []
    factors: defaultdict[str, set[float]] = defaultdict(set)
    for line in lines:
        source = line.source
        if source.shape == "factor":
            factors[source.canonical].add(line.value)
        elif source.metric.times:
            waiting.append(line)
        elif source.metric.scale != 1:
            yield line._replace(value=line.value * source.metric.scale)
        else:
            yield line
    for line in waiting:
        if len(found := factors[line.source.metric.times]) == 1:
            yield line._replace(value=line.value * line.source.metric.scale * next(iter(found)))


def _capacities(kind: str, samples: list[Line]) -> Mapping[str, int]:
    """KV cache in tokens by rank; none where a rank does not say.

    Never num_gpu_blocks × block_size: wrong for hybrid models, and num_gpu_blocks is already a sum over the ranks.
    """
    found: dict[str, int] = {}
    for line in samples:
        given = labels(line.labels)
        info = line.source.metric.name.endswith("_info")
        text = given.get(CAPACITY_LABEL, "") if info else _whole(line.value)
        if not _WHOLE_NUMBER.fullmatch(text):
            return {}
        rank = _rank(kind, given)
        found[rank] = found.get(rank, 0) + int(text)
    return found


def _whole(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < _MAX_WHOLE else ""


def _rank(kind: str, given: Mapping[str, str]) -> str:
    return given.get(RANK_LABELS.get(kind, ""), "")


def _usage(kind: str, samples: list[Line], capacities: Mapping[str, int]) -> float:
    """Use of all ranks' KV cache: each by its capacity, alike where one is not known."""
    ranks = [_rank(kind, labels(line.labels)) for line in samples]
    weights = [capacities.get(rank, 0) for rank in ranks]
    if not all(weights):
        weights = [1] * len(samples)
    usage = math.fsum(line.value * weight for line, weight in zip(samples, weights, strict=True)) / sum(weights)
    return min(usage, 1.0) if usage <= _ALL else math.nan


def _awake(name: str, samples: list[Line]) -> list[Reading]:
    """Awake as its sleepiest rank."""
    label, state = AWAKE_STATE
    awake = [line.value for line in samples if labels(line.labels).get(label) == state]
    return _single(name, min(awake)) if awake else []


def _finished(name: str, samples: list[Line]) -> list[Reading]:
    by_reason: defaultdict[str, float] = defaultdict(float)
    for line in samples:
        metric = line.source.metric
        reason = labels(line.labels).get(metric.reason_label, "").lower()
        by_reason[FINISH_REASONS.get(reason, metric.reason)] += line.value
    return [Reading(name, ("reason", reason), value) for reason, value in by_reason.items() if _counts(value)]


def _histogram(name: str, samples: list[Line]) -> list[Reading]:
    """Its buckets as the engine has them, its sum and its count; nothing of one that is not whole."""
    buckets: defaultdict[str, float] = defaultdict(float)
    rest = {"sum": math.nan, "count": math.nan}
    for line in samples:
        part = line.source.part
        if part == "bucket":
            buckets[_bound(name, line)] += line.value
        else:
            rest[part] = line.value if math.isnan(rest[part]) else rest[part] + line.value
    if len(buckets) > _BUCKETS_LIMIT:
        raise NotMetrics("too_many_buckets", f"{name} has {len(buckets)} buckets; at most {_BUCKETS_LIMIT} are taken")
    if "+Inf" not in buckets or not all(map(_counts, (*buckets.values(), *rest.values()))):
        return []
    found = [Reading(f"{name}_bucket", ("le", bound), count) for bound, count in buckets.items()]
    return [*found, *(Reading(f"{name}_{part}", (), value) for part, value in rest.items())]


def _bound(name: str, line: Line) -> str:
    """A bucket's bound in one spelling: text format and OpenMetrics write 1 and 1.0."""
    text = labels(line.labels).get("le", "")
    try:
        bound = float(text)
    except ValueError:
        raise NotMetrics("bad_line", f"a bucket of {name} has no number as le") from None
    if math.isnan(bound):
        raise NotMetrics("bad_line", f"a bucket of {name} has no number as le")
    return "+Inf" if bound == math.inf else repr(bound)
