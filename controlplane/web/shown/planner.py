"""What the planner's pages show: the numbers of a plan's document as facts, a bar and a curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlplane.web.shown.quantities import of_hundred
from wire.canonical import Document

_GIB = 2**30
# Of the picture, in its own units.
BAR_WIDTH, CURVE_WIDTH, CURVE_HEIGHT = 1000, 600, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 12, 10, 26
_KINDS = {
    "replicas": gettext_lazy("replicas"),
    "tensor_parallel": gettext_lazy("tensor parallel"),
    "pipeline": gettext_lazy("pipeline"),
    "tensor_and_pipeline": gettext_lazy("tensor parallel and pipeline"),
}
VERDICTS = {"yes": gettext_lazy("Yes"), "no": gettext_lazy("No"), "unknown": gettext_lazy("Not known")}
TONES = {"yes": "good", "no": "bad", "unknown": "wait"}


class Segment(NamedTuple):
    """A part of the memory bar. `x` and `width` are text, since a language's decimal comma is none in SVG."""

    kind: str
    label: str
    size: str
    x: str
    width: str


class Dot(NamedTuple):
    """A point of the curve, and what stands at the axis below it."""

    x: str
    y: str
    label: str


class Tick(NamedTuple):
    y: str
    label: str


class Curve(NamedTuple):
    """The mean wait in service times over load, on a scale of powers of ten."""

    points: str
    dots: list[Dot]
    ticks: list[Tick]


class Row(NamedTuple):
    """One way to share an engine out."""

    kind: str
    option: Document
    weights: str
    kv_cache: str
    missing: str
    is_chosen: bool


def gib(size: int) -> str:
    return f"{number_format(size / _GIB, 1, use_l10n=True)} GiB"


def memory_bar(plan: Document) -> list[Segment]:
    """Of one GPU: weights, what it computes with, the KV cache, and what the engine leaves alone."""
    chosen, total = plan["chosen"], plan["machines"]["memory_bytes"]
    parts = [
        ("weights", _("weights"), chosen["weights_bytes"]),
        ("allowance", _("activations and CUDA graphs"), chosen["allowance_bytes"]),
        ("kv", _("KV cache"), chosen["kv_budget_bytes"]),
        ("left", _("left alone"), total - chosen["usable_bytes"]),
    ]
    made, begin = [], 0.0
    for kind, label, size in parts:
        width = size * BAR_WIDTH / total
        made.append(Segment(kind, label, gib(size), f"{begin:.1f}", f"{width:.1f}"))
        begin += width
    return made


def wait_curve(waits: Sequence[Document]) -> Curve | None:
    """None where nothing is known of how fast it serves."""
    if not waits:
        return None
    low, high = int(waits[0]["load_permille"]), int(waits[-1]["load_permille"])
    most: float = math.log10(max(wait["service_times"] for wait in waits))

    def x(load: float) -> float:
        return _LEFT + (load - low) * (CURVE_WIDTH - _LEFT - _RIGHT) / (high - low)

    def y(factor: float) -> float:
        return CURVE_HEIGHT - _BOTTOM - math.log10(factor) * (CURVE_HEIGHT - _TOP - _BOTTOM) / most

    loads = range(low, high + 1, 10)
    line = " ".join(f"{x(load):.1f},{y(load / (1000 - load)):.1f}" for load in loads)
    dots = [
        Dot(f"{x(wait['load_permille']):.1f}", f"{y(wait['service_times']):.1f}", f"{wait['load_permille'] / 10:g} %")
        for wait in waits
        if wait["load_permille"] != 850
    ]
    return Curve(line, dots, [Tick(f"{y(factor):.1f}", str(factor)) for factor in (1, 3, 10, 30) if factor < 10**most])


def rows_of(plan: Document) -> list[Row]:
    """Every way, the chosen one marked."""
    chosen = plan["chosen"]
    return [
        Row(
            str(_KINDS[option["kind"]]),
            option,
            gib(option["weights_bytes"]),
            gib(option["kv_budget_bytes"]),
            "" if option["fits"] else gib(option["missing_bytes"]),
            option == chosen,
        )
        for option in plan["options"]
    ]


def percent(permille: int | None) -> str:
    """Per mille as percent, with a sign that a reader knows."""
    return "–" if permille is None else of_hundred(permille / 10, 1)


def signed_percent(permille: int | None) -> str:
    return percent(permille) if permille is None or permille <= 0 else f"+{percent(permille)}"
