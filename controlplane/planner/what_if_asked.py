"""What somebody asks of a what-if: given whole, or a pool of which the rest is measured."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from controlplane.core import fields as f
from controlplane.planner.what_if_measured import Measured, measured_of
from wire import what_if
from wire.canonical import Document
from wire.problems import Problem

DAYS_MAX = 31


class WhatIfFields(f.Fields):
    """`ask` as docs/what-if.md has it: lengths, arrivals, SLO, speed, and the settings to try. With a `pool`
    what it does not say is taken from what was measured of the pool in the last `days`, and from its engines.

    `calibrate`: the speed is found first, from the TTFT and TPOT that were measured of its engines; without, and where
    nothing was measured, it is the ask's or a default.
    """

    pool: f.Name | None = None
    days: Annotated[int, Field(ge=1, le=DAYS_MAX)] = 7
    calibrate: bool = True
    ask: dict[str, Any] = Field(default_factory=dict)


class Asked(NamedTuple):
    """Columns of the row."""

    pool: str
    ask: Document
    calibration: Document | None
    assumed: list[str]


def asked_of(fields: Mapping[str, Any], now: datetime) -> Asked:
    """Raises Refused with every problem."""
    asked = f.read(WhatIfFields, fields)
    measured = Measured({}, None, []) if asked.pool is None else measured_of(asked.pool, asked.days, now)
    ask = {**measured.ask, **asked.ask}
    try:
        what_if.read(ask)
    except what_if.BadAsk as error:
        at = [Problem(f"/ask{problem.path.rstrip('/')}", problem.rule, problem.message) for problem in error.problems]
        f.refuse_if(at)
    given = asked.ask.keys()
    assumed = [words for name, words in measured.assumed if name not in given]
    calibration = measured.calibration if asked.calibrate and "speed" not in given else None
    if asked.pool is not None and calibration is None and "speed" not in given:
        why = "no TTFT and TPOT were measured of its engines" if asked.calibrate else "calibrate is false"
        assumed.append(f"speed: that of an 8B model on one H100, as {why}")
    return Asked(asked.pool or "", ask, calibration, assumed)
