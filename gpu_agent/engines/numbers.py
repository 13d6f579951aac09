"""What an engine's metrics page says, in canonical names: its ranks put together. Pure.

"Not a number" and what cannot be true have no reading: never 0.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from gpu_agent.engines.names import (
    CAPACITY_LABEL,
    COPY_LABELS,
    FINISH_REASONS,
    OTHER_REASON,
    RANK_LABELS,
    REASON_LABEL,
)
from gpu_agent.engines.scan import Line, NotMetrics

# A name begins at a word's beginning: tried at each letter, a long word would take seconds.
_LABEL = re.compile(rb'\b([a-zA-Z_]\w*+)[ \t]*+=[ \t]*+"((?:[^"\\]++|\\.)*+)"')
_WHOLE_NUMBER = re.compile("[0-9]{1,15}")
_MAX_WHOLE = 10**15
# Engines have up to 30. More would make series without end.
_BUCKETS_LIMIT = 100
CAPACITY = "kv_cache_capacity_tokens"


class Reading(NamedTuple):
    """One number. `label`: `le` of a bucket or `reason` of a count, with its value; empty for none."""

    name: str
    label: tuple[str, str] | tuple[()]
    value: float


def readings(kind: str, lines: Iterable[Line]) -> list[Reading]:
    """The numbers of one page, ordered by the table of names. Raises: NotMetrics for buckets that are none."""
    by_metric: defaultdict[str, list[Line]] = defaultdict(list)
    for line in _without_copies(lines, COPY_LABELS.get(kind)):
        by_metric[line.source.canonical].append(line)
    capacities = _capacities(kind, by_metric.pop(CAPACITY, []))
    found = [Reading(CAPACITY, (), float(sum(capacities.values())))] if capacities else []
    for name, samples in by_metric.items():
        match samples[0].source.shape:
            case "histogram":
                found += _histogram(name, samples)
            case "finished":
                found += _finished(name, samples)
            case "usage":
                found += _single(name, _usage(kind, samples, capacities))
            case _:
                found += _single(name, math.fsum(line.value for line in samples))
    return found


def capacity_tokens(found: Iterable[Reading]) -> int | None:
    """The KV cache of the whole server; None where it does not say."""
    return next((int(reading.value) for reading in found if reading.name == CAPACITY), None)


def _single(name: str, value: float) -> list[Reading]:
    return [Reading(name, (), value)] if _counts(value) else []


def _counts(value: float) -> bool:
    return math.isfinite(value) and value >= 0


def labels(text: bytes) -> dict[str, str]:
    """The labels between the braces of a sample, escapes left as they are."""
    return {name.decode(): value.decode("utf-8", "replace") for name, value in _LABEL.findall(text)}


def _without_copies(lines: Iterable[Line], copy_labels: Collection[str] | None) -> Iterable[Line]:
    """One line of those that differ in `copy_labels` alone, on every page the same one."""
    if copy_labels is None:
        return lines
    found: dict[tuple[object, ...], Line] = {}
    for line in lines:
        rest = ((name, value) for name, value in labels(line.labels).items() if name not in copy_labels)
        identity = (line.source, *sorted(rest))
        found[identity] = min(line, found.get(identity, line), key=lambda each: each.labels)
    return found.values()


def _capacities(kind: str, samples: list[Line]) -> Mapping[str, int]:
    """KV cache in tokens by rank; none where a rank does not say.

    Never num_gpu_blocks × block_size: wrong for hybrid models, and num_gpu_blocks is already a sum over the ranks.
    """
    found: dict[str, int] = {}
    for line in samples:
        given = labels(line.labels)
        text = given.get(CAPACITY_LABEL, "") if kind == "vllm" else _whole(line.value)
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
    return math.fsum(line.value * weight for line, weight in zip(samples, weights, strict=True)) / sum(weights)


def _finished(name: str, samples: list[Line]) -> list[Reading]:
    by_reason: defaultdict[str, float] = defaultdict(float)
    for line in samples:
        reason = labels(line.labels).get(REASON_LABEL, "")
        by_reason[reason if reason in FINISH_REASONS else OTHER_REASON] += line.value
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
