"""A metrics page of an engine, read for the lines that the tables of names want and nothing else.

A page is taken whole or not at all: of counters over several ranks, a missing line would look like a restart.
Formats: https://prometheus.io/docs/instrumenting/exposition_formats/ and OpenMetrics 1.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from wire.engine_pages.name_pattern import any_of
from wire.engine_pages.names import CANONICAL, NAMES, Alternative, Metric, Shape

_MEDIA_TYPES = ("text/plain", "application/openmetrics-text")
# Longer than vLLM's longest, that of its cache's configuration.
_LINE_LIMIT_BYTES = 64 * 1024
# 64 ranks of an engine take half of it. More would hold up the looks at others for over 100 ms.
_SAMPLES_LIMIT = 20_000
# Of all samples together; for the same reason.
_LABELS_LIMIT = 5 * _SAMPLES_LIMIT
OWN_LIMIT = 500
_PARTS = ("bucket", "sum", "count")
_OWN_PARTS = ("_total", *(f"_{part}" for part in _PARTS))
# Pages of any Python program have it, those of a server whose engines say nothing included.
_OF_ANY_PROCESS = "process_start_time_seconds"
_LABELS = rb'\{([^"\n}]*+(?:"(?:[^"\\\n]++|\\[^\n])*+"[^"\n}]*+)*+)\}'
_NUMBER = rb"[+-]?(?:[0-9.]++(?:[eE][+-]?[0-9]++)?|[Ii]nf|[Nn]a[Nn])"
# Timestamps and exemplars are passed over: a look has its own time.
_REST = rb"(?:[ \t]++-?[0-9.eE+]++)?(?:[ \t]++#[^\n]*+)?[ \t]*+(?=\n)"


class NotMetrics(Exception):
    """A page that cannot be taken: the message begins with the reason's name and says what would be right."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")


@dataclass(frozen=True)
class Source:
    """What a series on a page counts towards. `preference`: the lowest on a page holds. `part`: of a histogram."""

    canonical: str
    shape: Shape
    metric: Metric
    preference: int = 0
    part: str = ""


class Line(NamedTuple):
    """One sample of a page; `labels` as they stand between the braces."""

    source: Source
    labels: bytes
    value: float


class OwnLine(NamedTuple):
    """One sample that passes under its own name; `labels` as they stand between the braces."""

    name: str
    labels: bytes
    value: float


class _Wanted:
    """The names of one kind of engine, ready for scanning."""

    def __init__(self, kind: str, own: tuple[str, ...], signals: frozenset[str] | None) -> None:
        self.sources: dict[bytes, list[Source]] = {}
        for name, source in _series(kind, signals):
            self.sources.setdefault(name.encode(), []).append(source)
        own_names = [name + part for name in own for part in ("", *_OWN_PARTS) if not name.endswith("*")]
        self._own = {name.encode(): name for name in own_names}
        self._own_prefixes = tuple(name[:-1].encode() for name in own if name.endswith("*"))
        names = any_of([*(name.decode() for name in self.sources), *own_names, *(name for name in own if "*" in name)])
        # A line of a wanted name that does not go on as it must still matches, without a value.
        self.lines = re.compile(
            rb"\n(" + names + rb")(?![a-zA-Z0-9_:])(?:(?:" + _LABELS + rb")?[ \t]*+(" + _NUMBER + rb")" + _REST + rb")?"
        ).finditer

    def own_name(self, name: bytes) -> str:
        """The name under which a series passes as it is; empty for one that does not."""
        if found := self._own.get(name):
            return found
        passes = name.startswith(self._own_prefixes) and not name.endswith(b"_created")
        return name.decode() if passes else ""


def _series(kind: str, signals: frozenset[str] | None) -> Iterator[tuple[str, Source]]:
    table = {name: each for name, each in NAMES[kind].items() if signals is None or name in signals}
    for canonical, alternatives in table.items():
        shape = CANONICAL[canonical]
        for age, metric in ((age, metric) for age, each in enumerate(alternatives) for metric in _metrics(each)):
            name = metric.name
            if shape == "histogram":
                for part in _PARTS:
                    yield f"{name}_{part}", Source(canonical, shape, metric, 2 * age, part)
            elif shape in ("counter", "finished"):
                yield f"{name}_total", Source(canonical, shape, metric, 2 * age)
                yield name, Source(canonical, shape, metric, 2 * age + 1)
            else:
                yield name, Source(canonical, shape, metric, 2 * age)
    for name in {metric.times for each in table.values() for one in each for metric in _metrics(one)} - {""}:
        yield name, Source(name, "factor", Metric(name))


def _metrics(alternative: Alternative) -> Iterable[Metric]:
    if isinstance(alternative, str):
        return (Metric(alternative),)
    if isinstance(alternative, Metric):
        return (alternative,)
    return [Metric(each) if isinstance(each, str) else each for each in alternative]


# Made at the first look at an engine of the kind: a node has few kinds.
_wanted = cache(_Wanted)


class Scan:
    """One page, fed as it comes; at most one unfinished line of it is held. `media_type`: without parameters.

    `own`: names of the engine's own metrics that pass as they are, without what OpenMetrics adds to them; a trailing *
    makes one a prefix. Of those, `own_lines` holds at most one more than OWN_LIMIT. `signals`: the canonical names to
    read; None: all. Sum and count of a histogram go by its name.
    """

    def __init__(
        self, kind: str, media_type: str, own: tuple[str, ...] = (), signals: frozenset[str] | None = None
    ) -> None:
        """Raises: NotMetrics for a page that says that it is something else."""
        if media_type not in _MEDIA_TYPES:
            raise NotMetrics("not_metrics", f"the page is {media_type or 'of no type'}, not {_MEDIA_TYPES[0]}")
        self._kind, self._wanted = kind, _wanted(kind, own, signals)
        self._open_metrics = media_type != _MEDIA_TYPES[0]
        # Whole lines are looked for between line ends, so the page begins with one.
        self._rest = b"\n"
        self._last = b""
        self._found: dict[tuple[bytes, bytes], float] = {}
        self._labels = 0
        self.own_lines: list[OwnLine] = []

    def feed(self, chunk: bytes) -> None:
        """Raises: NotMetrics."""
        data = self._rest + chunk
        end = data.rfind(b"\n", 1)
        if end > 0:
            self._take(data[: end + 1])
            self._last = data[data.rfind(b"\n", 0, end) + 1 : end]
            # The line end begins the next line.
            data = data[end:]
        if len(data) > _LINE_LIMIT_BYTES:
            raise NotMetrics("not_metrics", f"a line is longer than {_LINE_LIMIT_BYTES} bytes")
        self._rest = data

    def _take(self, lines: bytes) -> None:
        sources, found = self._wanted.sources, self._found
        for match in self._wanted.lines(lines):
            name, labels, number = match.groups()
            canonical = name in sources
            if number is None:
                if not canonical:
                    continue
                raise NotMetrics("bad_line", f"a sample of {name.decode()} cannot be read; give name{{labels}} value")
            try:
                value = float(number)
            except ValueError:
                raise NotMetrics("bad_line", f"the value of a sample of {name.decode()} is no number") from None
            if labels:
                self._labels += labels.count(b"=")
            if canonical:
                key = name, labels or b""
                if key in found:
                    raise NotMetrics("sample_twice", f"{name.decode()} stands there twice with the same labels")
                found[key] = value
            self._take_own(name, labels or b"", value)
        if len(found) > _SAMPLES_LIMIT:
            raise NotMetrics("too_many_samples", f"more than {_SAMPLES_LIMIT} samples of wanted metrics")
        if self._labels > _LABELS_LIMIT:
            raise NotMetrics("too_many_labels", f"more than {_LABELS_LIMIT} labels of wanted metrics")

    def _take_own(self, name: bytes, labels: bytes, value: float) -> None:
        if (own_name := self._wanted.own_name(name)) and len(self.own_lines) <= OWN_LIMIT:
            self.own_lines.append(OwnLine(own_name, labels, value))

    def end(self) -> list[Line]:
        """The wanted samples, each metric under the newest of its names that the page has. Raises: NotMetrics."""
        lines = [
            Line(source, labels, value)
            for (name, labels), value in self._found.items()
            for source in self._wanted.sources[name]
        ]
        if all(line.source.canonical == _OF_ANY_PROCESS for line in lines):
            raise NotMetrics("not_metrics", f"the page has no metric of {self._kind}'s")
        if not self._whole():
            raise NotMetrics("cut_short", "the page ends in the middle; it must end with a line end")
        newest: dict[str, int] = {}
        for line in lines:
            source = line.source
            newest[source.canonical] = min(source.preference, newest.get(source.canonical, source.preference))
        return [line for line in lines if line.source.preference == newest[line.source.canonical]]

    def _whole(self) -> bool:
        if not self._open_metrics:
            return self._rest == b"\n"
        return self._rest == b"\n# EOF" or (self._rest == b"\n" and self._last == b"# EOF")
