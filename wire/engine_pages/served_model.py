"""Which samples of a page are of the model that an engine serves, where its server has several. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from wire.engine_pages.names import MODEL_LABELS
from wire.engine_pages.numbers import labels
from wire.engine_pages.scan import Line, NotMetrics, OwnLine

_L = TypeVar("_L", Line, OwnLine)
_NAMES_SHOWN = 5


def of_served_model(lines: Sequence[_L], served_model: str) -> list[_L]:
    """The lines of that model, and those of none. Of a page that names one model, or none, all lines.

    Raises: NotMetrics for a page of several models none of which is `served_model`.
    """
    chosen = list(lines)
    for label in MODEL_LABELS:
        models = _models(chosen, label)
        if len(models) < 2:
            continue
        if served_model not in models:
            names = ", ".join(sorted(models)[:_NAMES_SHOWN])
            raise NotMetrics("other_models", f"the page is of models {names}; the engine serves {served_model!r}")
        chosen = [line for line in chosen if labels(line.labels).get(label, served_model) == served_model]
    return chosen


def _models(lines: Sequence[Line | OwnLine], label: str) -> set[str]:
    """The models that the lines name in that label. Of a page of one model, as most are, one line is taken apart."""
    named = label.encode() + b'="'
    models: set[str] = set()
    first = after_another = b""
    for line in lines:
        text = line.labels
        if named not in text or (first and (text.startswith(first) or after_another in text)):
            continue
        if (model := labels(text).get(label)) is not None:
            models.add(model)
            if not first:
                first = named + model.encode() + b'"'
                after_another = b"," + first
    return models
