"""Carrying the embedded store's history over to an external server: by remote write, in order of time, resumable."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np

from controlplane.telemetry.sending import BodyRefused, NotNow, post_checked
from controlplane.telemetry.store.database import connect, transaction
from controlplane.telemetry.store.reader import Selection, reader_of
from wire.files import read_bounded, write_private
from wire.pace import Pace
from wire.write_body import Series, encode

# Servers take a series' samples in order of time, and all series' within an hour of each other: so much comes at once.
_SLICE_MS = 15 * 60 * 1000
_BODY_SAMPLES = 5000
_POSITION_NAME = "metrics.exported.json"
_POSITION_MAX_BYTES = 10_000
_TOLD_EVERY_SECONDS = 10.0
# Some two minutes, where the server refuses at once.
_TRIES = 80
_OLDEST = "SELECT MIN(oldest_ms) FROM (SELECT oldest_ms FROM chunk UNION ALL SELECT oldest_ms FROM batch)"


class CannotExport(RuntimeError):
    """The server does not take the history now; what it took is remembered."""


class Exported(msgspec.Struct):
    """How far the history was carried to `url`: all samples up to `through_ms` (Unix time), `refused` of them not."""

    url: str
    through_ms: int
    samples: int = 0
    refused: int = 0


def export(store: Path, url: str, until_ms: int, say: Callable[[str], None], pace: Pace | None = None) -> Exported:
    """Send every sample up to `until_ms` that an earlier call for the same `url` has not sent.

    A call that was cut off sends at most the last quarter of an hour again. `say` is told how it goes.
    Raises: CannotExport, StoreUnavailable, OSError.
    """
    reader, file = reader_of(store), store.with_name(_POSITION_NAME)
    done = _position(file, url, _oldest_ms(store, until_ms) - 1)
    told = time.monotonic()
    while done.through_ms < until_ms:
        end_ms = min(done.through_ms + _SLICE_MS, until_ms)
        for series in _grouped(reader.select([], done.through_ms, end_ms, lambda samples: None)):
            count = sum(len(each.samples) for each in series)
            if not _sent(url, encode(series), say, pace or Pace()):
                done.refused += count
            done.samples += count
        done.through_ms = end_ms
        write_private(file, msgspec.json.encode(done))
        if time.monotonic() - told > _TOLD_EVERY_SECONDS:
            told = time.monotonic()
            say(f"through {_moment(end_ms)}: {done.samples:,} samples")
    return done


def _oldest_ms(store: Path, otherwise_ms: int) -> int:
    with closing(connect(store, writing=False)) as connection, transaction(connection, writing=False):
        (oldest,) = connection.execute(_OLDEST).fetchone()
    return otherwise_ms + 1 if oldest is None else int(oldest)


def _position(file: Path, url: str, start_ms: int) -> Exported:
    """Where to go on. A position that cannot be read, or of another server, is none: sent twice counts once."""
    try:
        found = msgspec.json.decode(read_bounded(file, _POSITION_MAX_BYTES), type=Exported)
    except (FileNotFoundError, ValueError, msgspec.MsgspecError):
        return Exported(url, start_ms)
    return found if found.url == url else Exported(url, start_ms)


def _grouped(selection: Selection) -> Iterator[list[Series]]:
    """The series of a slice, so many at once as make a body."""
    rows, times_ms, values = selection.columns
    starts, ends = np.flatnonzero(np.diff(rows, prepend=-1)), np.flatnonzero(np.diff(rows, append=-1))
    group: list[Series] = []
    size = 0
    for labels, first, last in zip(selection.labels, starts.tolist(), ends.tolist(), strict=True):
        where = slice(first, last + 1)
        group.append(Series(labels, list(zip(times_ms[where].tolist(), values[where].tolist(), strict=True))))
        size += len(group[-1].samples)
        if size >= _BODY_SAMPLES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _sent(url: str, body: bytes, say: Callable[[str], None], pace: Pace) -> bool:
    """Whether the server took it rather than refused it for good. Raises CannotExport."""
    for attempt in range(_TRIES):
        try:
            return _taken(url, body, say)
        except NotNow as error:
            trouble = error
            time.sleep(error.retry_after_seconds + pace.delay_seconds(attempt, pace.retry_cap_seconds))
    raise CannotExport(f"{trouble}; run it again later, it goes on where it stopped")


def _taken(url: str, body: bytes, say: Callable[[str], None]) -> bool:
    try:
        post_checked(url, body)
    except BodyRefused as refused:
        say(f"refused: {refused}")
        return False
    return True


def _moment(time_ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_ms / 1000))
