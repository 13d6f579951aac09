"""Durations as Prometheus writes them in rule files. Source: prometheus/common/model/time.go."""

from __future__ import annotations

import re

_UNITS_MS = {
    "y": 365 * 86_400_000,
    "w": 7 * 86_400_000,
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1000,
    "ms": 1,
}
# It counts nanoseconds in 64 bits.
_MAX_MS = (2**63 - 1) // 1_000_000
_FORM = re.compile("".join(f"(?:([0-9]{{1,18}}){unit})?" for unit in _UNITS_MS))
# As it is often easier to read 90d than 12w6d.
_WHOLE_ONLY = ("y", "w")


def milliseconds(text: str) -> int:
    """Raises ValueError, which says what would be right."""
    found = _FORM.fullmatch(text)
    if text != "0" and (not text or found is None):
        raise ValueError("give a duration such as 30s, 5m or 1h30m, its units from the largest to the smallest")
    total = sum(
        int(count or 0) * unit for count, unit in zip(found.groups() if found else (), _UNITS_MS.values(), strict=False)
    )
    if total > _MAX_MS:
        raise ValueError("give a duration of less than 292 years")
    return total


def written(duration_ms: int) -> str:
    """The form that `milliseconds` reads as the same."""
    if not duration_ms:
        return "0s"
    parts = []
    for unit, size in _UNITS_MS.items():
        if unit in _WHOLE_ONLY and duration_ms % size:
            continue
        count, duration_ms = divmod(duration_ms, size)
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts)
