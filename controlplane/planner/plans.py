"""Plans and fan-outs of the fleet: what is asked for is typed, or taken from rows and metrics. Nothing is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils import timezone

from controlplane.core import fields as f
from controlplane.fleet.models import Model
from controlplane.planner.fleet_gpus import machines_of
from controlplane.planner.plan_asked import fanned_out, planned, shape_asked, typed_lengths, typed_machines, typed_rates
from controlplane.planner.plan_beside import beside
from controlplane.planner.plan_described import described, fan_out_described, rates_described
from controlplane.planner.plan_fields import FanOutFields, PlanFields, RatesAsked
from controlplane.planner.plan_measured import measured_lengths, measured_rates
from policy.planning.plan import RatesFrom
from policy.planning.speed import Rates
from wire.canonical import Document
from wire.problems import Problem, pointer


def plan(asked: Mapping[str, Any]) -> Document:
    """Raises NotFound for a pool that does not exist, Refused with what would be right."""
    fields = f.read(PlanFields, asked)
    shape = shape_asked(fields.model)
    machines = typed_machines(fields.gpus) if fields.gpus.fleet_node is None else machines_of(fields.gpus)
    now = timezone.now()
    measured = fields.lengths.measured
    lengths = typed_lengths(fields.lengths) if measured is None else measured_lengths(measured, now)
    rates, source = (None, _ESTIMATED) if fields.rates is None else _rates(fields.rates, "/rates")
    ask, made = planned(fields, shape, machines, lengths, rates, source)
    model = _compared_model(fields)
    sharding = made.choice.closest.sharding if made.chosen is None else made.chosen.fit.sharding
    return {
        **described(ask, made),
        "lengths_from": "typed" if measured is None else "measured",
        "requests_counted": None if measured is None else sum(lengths[0].values()),
        "compared_model": model,
        "engines": [] if model is None else beside(ask, model, sharding),
    }


_ESTIMATED: RatesFrom = "estimated"


def _rates(asked: RatesAsked, at: str) -> tuple[Rates, RatesFrom]:
    typed = typed_rates(asked)
    return (measured_rates(asked, at, timezone.now()), "measured") if typed is None else (typed, "typed")


def _compared_model(fields: PlanFields) -> str | None:
    """Raises Refused where the one that is named does not exist."""
    if fields.compare_model is None:
        return fields.model.known
    if not Model.objects.filter(name=fields.compare_model).exists():
        says = f"model {fields.compare_model!r} does not exist"
        raise f.refused([Problem("/compare_model", "reference", says)])
    return fields.compare_model


def fan_out(asked: Mapping[str, Any]) -> Document:
    """Raises NotFound for a pool that does not exist, Refused with what would be right."""
    fields = f.read(FanOutFields, asked)
    rates = {model: _rates(each, pointer("/rates", model)) for model, each in fields.rates.items()}
    made = fanned_out(fields, {model: each for model, (each, _) in rates.items()})
    return {
        **fan_out_described(made),
        "load_permille": fields.load_permille,
        "rates": {model: {"from": source, **rates_described(each)} for model, (each, source) in rates.items()},
    }
