"""Live series as a page in Prometheus' text format 0.0.4. Pure.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from gpu_agent.nvml.fields import DCGM_COUNTERS
from gpu_agent.telemetry import LivePart
from wire.write_body import METRIC_NAME

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKET = "_bucket"
_OF_HISTOGRAM = (_BUCKET, "_sum", "_count")
_LINES_AT_ONCE = 250
_Row = tuple[Mapping[str, str], float]


def exposition(parts: Iterable[LivePart]) -> Iterator[bytes]:
    """The page in pieces, each made in some milliseconds. Lines of one family stand together, after its type."""
    by_name = _by_name(parts)
    lines: list[str] = []
    for family, kind, names in _families(by_name):
        lines.append(f"# TYPE {family} {kind}")
        for name in names:
            for labels, value in by_name[name]:
                lines.append(f"{name}{_shown_labels(labels)} {_shown(value)}")
                if len(lines) >= _LINES_AT_ONCE:
                    yield _encoded(lines)
                    lines.clear()
    yield _encoded(lines)


def _by_name(parts: Iterable[LivePart]) -> dict[str, list[_Row]]:
    rows = defaultdict(list)
    for part in parts:
        for labels, value in zip(part.labels, part.values, strict=True):
            rows[labels[METRIC_NAME]].append((labels, value))
    return rows


def _families(by_name: Mapping[str, list[_Row]]) -> Iterator[tuple[str, str, list[str]]]:
    """Each family's name, its type and the names of its lines."""
    bases = {
        name.removesuffix(_BUCKET)
        for name, rows in by_name.items()
        if name.endswith(_BUCKET) and all("le" in labels for labels, _ in rows)
    }
    of_histograms = {base + suffix for base in bases for suffix in _OF_HISTOGRAM}
    for base in sorted(bases):
        yield base, "histogram", [name for suffix in _OF_HISTOGRAM if (name := base + suffix) in by_name]
    for name in sorted(by_name.keys() - of_histograms):
        yield name, "counter" if name.endswith("_total") or name in DCGM_COUNTERS else "gauge", [name]


def _shown_labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items() if name != METRIC_NAME) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _shown(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)


def _encoded(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode(errors="replace")
