"""Recorded samples on their way: into the embedded store, or to the external server."""

from __future__ import annotations

from collections.abc import Sequence

from controlplane.core.errors import Refused
from controlplane.telemetry import forwarding
from controlplane.telemetry import settings_rows as rows
from controlplane.telemetry.receiver import store_path
from controlplane.telemetry.store.admission import Window
from controlplane.telemetry.store.database import StoreUnavailable
from controlplane.telemetry.store.writer import NotStored, Owner, SeriesRemoved, writer_of
from wire.problems import Problem
from wire.remote_write import Bounds, labels_of
from wire.write_body import Key, Series, encode, key_of

OWNER = Owner("headworks", "recording")


class NotWritten(RuntimeError):
    """Nothing was kept; the message says why."""


def write(series: Sequence[Series], at_ms: int) -> None:
    """Keep one sample of each series, of the moment `at_ms` (Unix time). Raises NotWritten."""
    if not series:
        return
    keys = [key_of(each.labels) for each in series]
    bounds = Bounds(labels=rows.METRICS_LABELS_MAX.read(), value_length=rows.METRICS_LABEL_VALUE_MAX_CHARACTERS.read())
    _refuse([problem for key in keys for problem in labels_of(key, bounds)[1]])
    try:
        if url := rows.REMOTE_WRITE_URL.read():
            forwarding.pass_on(url, encode(series))
        else:
            _store(series, keys, at_ms)
    except NotStored as error:
        _refuse(error.problems)
    except StoreUnavailable as error:
        raise NotWritten(f"the metric store cannot be written now: {error}") from error
    except Refused as refused:
        raise NotWritten(refused.detail) from refused


def _store(series: Sequence[Series], keys: Sequence[Key], at_ms: int) -> None:
    writer = writer_of(store_path())
    samples = ([1] * len(keys), [at_ms] * len(keys), [value for each in series for _, value in each.samples])
    # However late: a clock that ran ahead for a while left newer samples.
    window = Window(oldest_ms=at_ms, newest_ms=at_ms, late_ms=at_ms)
    for last_try in (False, True):
        known = writer.known(OWNER)
        fresh = {key: each.labels for key, each in zip(keys, series, strict=True) if key not in known}
        try:
            # The limit is that of each rule's result.
            writer.write(OWNER, keys, fresh, samples, window, series_max=None)
            return
        except SeriesRemoved:
            if last_try:
                raise NotWritten("series are being removed from the metric store") from None


def _refuse(problems: Sequence[Problem]) -> None:
    """Raises NotWritten with the first problem, if there is one."""
    if problems:
        raise NotWritten(f"{problems[0].path}: {problems[0].rule}: {problems[0].message}")
