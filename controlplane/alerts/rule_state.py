"""How the series of an alerting rule come and go: pending, firing, resolved. Pure: time is passed in.

As Prometheus does it (rules/alerting.go, `Eval`): a series is pending from the first evaluation that finds it; it fires
once it has been found at every one for the rule's `for`. A pending series that is not found is forgotten, a firing one
resolved, but not before `keep_firing_for` has gone by since the first evaluation that missed it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta


@dataclass(frozen=True)
class Active:
    """One series that is pending or fires. `value` is as Prometheus writes numbers, of when it was last found."""

    value: str
    active_since: datetime
    absent_since: datetime | None = None
    firing: bool = False


def step(
    previous: Mapping[str, Active],
    found: Mapping[str, str],
    at: datetime,
    *,
    pending_for: timedelta,
    keep_firing_for: timedelta,
    unseen: timedelta = timedelta(0),
) -> dict[str, Active]:
    """The series there are after an evaluation at `at`, which found these (fingerprint → value).

    `unseen`: for how long nobody looked before it, because no worker ran. As when Prometheus restores its state after
    a restart, that time does not count towards `for`, and what was firing goes on.
    """
    active: dict[str, Active] = {}
    for name, series in previous.items():
        if name in found:
            since = series.active_since if series.firing else series.active_since + unseen
            active[name] = replace(series, value=found[name], active_since=since, absent_since=None)
        elif series.firing:
            absent_since = series.absent_since or at
            if at - absent_since < keep_firing_for:
                active[name] = replace(series, absent_since=absent_since)
    for name, value in found.items():
        active.setdefault(name, Active(value, active_since=at))
    for name, series in active.items():
        if at - series.active_since >= pending_for:
            active[name] = replace(series, firing=True)
    return active
