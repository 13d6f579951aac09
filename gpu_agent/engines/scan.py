"""A metrics page of an engine, read for the lines that the table of names wants and nothing else.

A page is taken whole or not at all: of counters over several ranks, a missing line would look like a restart.
Formats: https://prometheus.io/docs/instrumenting/exposition_formats/ and OpenMetrics 1.0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from gpu_agent.engines.names import CANONICAL, NAMES, Shape

_MEDIA_TYPES = ("text/plain", "application/openmetrics-text")
# Longer than vLLM's longest, that of its cache's configuration.
_LINE_LIMIT_BYTES = 64 * 1024
# 64 ranks of an engine take a third of it.
_SAMPLES_LIMIT = 30_000
_PARTS = ("bucket", "sum", "count")
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
    preference: int
    part: str = ""


class Line(NamedTuple):
    """One sample of a page; `labels` as they stand between the braces."""

    source: Source
    labels: bytes
    value: float


class _Wanted:
    """The names of one kind of engine, ready for scanning."""

    def __init__(self, kind: str) -> None:
        self.sources = dict(_series(kind))
        names = b"|".join(self.sources)
        # A line of a wanted name that does not go on as it must still matches, without a value.
        self.lines = re.compile(
            rb"\n(" + names + rb")(?![a-zA-Z0-9_:])(?:(?:" + _LABELS + rb")?[ \t]*+(" + _NUMBER + rb")" + _REST + rb")?"
        ).finditer


def _series(kind: str) -> list[tuple[bytes, Source]]:
    found: list[tuple[str, Source]] = []
    for canonical, names in NAMES[kind].items():
        shape = CANONICAL[canonical]
        for age, name in enumerate(names):
            if shape == "histogram":
                found += [(f"{name}_{part}", Source(canonical, shape, 2 * age, part)) for part in _PARTS]
            elif shape in ("counter", "finished"):
                found.append((f"{name}_total", Source(canonical, shape, 2 * age)))
                found.append((name, Source(canonical, shape, 2 * age + 1)))
            else:
                found.append((name, Source(canonical, shape, 2 * age)))
    return [(name.encode(), source) for name, source in found]


# Made at the first look at an engine of the kind: a node has few kinds.
_wanted = cache(_Wanted)


class Scan:
    """One page, fed as it comes; at most one unfinished line of it is held. `media_type`: without parameters."""

    def __init__(self, kind: str, media_type: str) -> None:
        """Raises: NotMetrics for a page that says that it is something else."""
        if media_type not in _MEDIA_TYPES:
            raise NotMetrics("not_metrics", f"the page is {media_type or 'of no type'}, not {_MEDIA_TYPES[0]}")
        self._kind, self._wanted = kind, _wanted(kind)
        self._open_metrics = media_type != _MEDIA_TYPES[0]
        # Whole lines are looked for between line ends, so the page begins with one.
        self._rest = b"\n"
        self._last = b""
        self._found: dict[tuple[bytes, bytes], Line] = {}

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
        sources = self._wanted.sources
        for match in self._wanted.lines(lines):
            name, labels, number = match.groups()
            if number is None:
                raise NotMetrics("bad_line", f"a sample of {name.decode()} cannot be read; give name{{labels}} value")
            key = name, labels or b""
            if key in self._found:
                raise NotMetrics("sample_twice", f"{name.decode()} stands there twice with the same labels")
            try:
                self._found[key] = Line(sources[name], key[1], float(number))
            except ValueError:
                raise NotMetrics("bad_line", f"the value of a sample of {name.decode()} is no number") from None
        if len(self._found) > _SAMPLES_LIMIT:
            raise NotMetrics("too_many_samples", f"more than {_SAMPLES_LIMIT} samples of wanted metrics")

    def end(self) -> list[Line]:
        """The wanted samples, each metric under the newest of its names that the page has. Raises: NotMetrics."""
        if not self._found:
            raise NotMetrics("not_metrics", f"the page has no metric of {self._kind}'s")
        if not self._whole():
            raise NotMetrics("cut_short", "the page ends in the middle; it must end with a line end")
        newest: dict[str, int] = {}
        for line in self._found.values():
            source = line.source
            newest[source.canonical] = min(source.preference, newest.get(source.canonical, source.preference))
        return [line for line in self._found.values() if line.source.preference == newest[line.source.canonical]]

    def _whole(self) -> bool:
        if not self._open_metrics:
            return self._rest == b"\n"
        return self._rest == b"\n# EOF" or (self._rest == b"\n" and self._last == b"# EOF")
