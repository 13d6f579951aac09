"""Arithmetic of judgements, and the series behind a number as PromQL."""

from __future__ import annotations

from collections.abc import Mapping

_NOTHING = 1e-9


def share(part: float, whole: float) -> float:
    """0 of nothing, or of what extrapolation leaves of it."""
    return part / whole if whole > _NOTHING else 0.0


def of(metric: str, window_seconds: int = 0, **labels: str) -> str:
    """A selector; of a range where there is a window. Configured names have nothing that ends a string in PromQL."""
    chosen = ",".join(f'{label}="{value}"' for label, value in labels.items() if value)
    span = f"[{window_seconds}s]" if window_seconds else ""
    return f"{metric}{{{chosen}}}{span}" if chosen else f"{metric}{span}"


def named(values: Mapping[tuple[str, ...], float]) -> dict[str, float]:
    """Of values by one label, by that alone."""
    return {name: value for (name,), value in values.items()}
