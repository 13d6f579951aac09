"""An engine's own series that pass under their own names, beside the canonical ones. Pure.

They carry the labels of the node's configuration as the canonical ones do. A label of the engine's that bears the name
of one of these is kept as `exported_…`, as Prometheus does it; its number of a data-parallel rank is `rank`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from wire.engine_pages.names import OWN_SERIES
from wire.engine_pages.numbers import LABEL
from wire.engine_pages.scan import OWN_LIMIT, NotMetrics, OwnLine

# The engine knows its model by a name of its own; the label `model` says which one it is.
_DROPPED = "model_name"
_RENAMED = {
    "engine": "rank",
    **{name: f"exported_{name}" for name in ("__name__", "node", "gateway", "kind", "model", "pool", "rank")},
}
# Half of what one label may be long and of how many there may be at the control plane: others come to them.
_VALUE_CHARACTERS = 512
_LABELS_LIMIT = 20
_ESCAPED = re.compile(r"\\(.)")


class OwnSeries(NamedTuple):
    """One number under the engine's own name, with its own labels."""

    name: str
    labels: dict[str, str]
    value: float


def own_names(kind: str, configured: tuple[str, ...] | None) -> tuple[str, ...]:
    """Which of its own series an engine of this kind may pass on; None: those that are useful in general."""
    return OWN_SERIES.get(kind, ()) if configured is None else configured


def own_series(lines: Sequence[OwnLine]) -> list[OwnSeries]:
    """The series to pass on, all or none. Raises: NotMetrics for what would not be taken where it is sent."""
    if len(lines) > OWN_LIMIT:
        raise NotMetrics("too_many_own_series", f"more than {OWN_LIMIT} series are allowed to pass; name fewer")
    found: dict[tuple[object, ...], OwnSeries] = {}
    for line in lines:
        if not math.isfinite(line.value):
            continue
        labels = _labels(line)
        identity = (line.name, *sorted(labels.items()))
        if identity in found:
            raise NotMetrics("own_series_twice", f"{line.name} stands there twice with the same labels")
        found[identity] = OwnSeries(line.name, labels, line.value)
    return list(found.values())


def _labels(line: OwnLine) -> dict[str, str]:
    labels: dict[str, str] = {}
    for raw_name, raw_value in LABEL.findall(line.labels):
        name = raw_name.decode()
        if name == _DROPPED or not raw_value:
            continue
        try:
            value = raw_value.decode()
        except UnicodeDecodeError:
            raise NotMetrics("bad_own_series", f"label {name} of {line.name} is not UTF-8") from None
        labels[_RENAMED.get(name, name)] = _ESCAPED.sub(_unescaped, value) if "\\" in value else value
        if len(value) > _VALUE_CHARACTERS or len(labels) > _LABELS_LIMIT:
            raise NotMetrics(
                "bad_own_series",
                f"{line.name} has over {_LABELS_LIMIT} labels or one over {_VALUE_CHARACTERS} characters",
            )
    return labels


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]
