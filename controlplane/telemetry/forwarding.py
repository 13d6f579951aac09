"""Passing checked bodies on to an external server: over a spool on disk, or at once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from django.conf import settings

from controlplane.core.errors import TooLarge
from controlplane.core.idle import give_back_connection
from controlplane.telemetry import settings_rows as rows
from controlplane.telemetry.active_series import ActiveSeries, hashes_of
from controlplane.telemetry.outgoing import FILE_NAME, Full, Outgoing
from controlplane.telemetry.ownership import Source, check_series
from controlplane.telemetry.refusals import RETRY_AFTER_SECONDS, BadWrite, Busy, TooManyWrites
from controlplane.telemetry.sending import BodyRefused, NotNow, Sender, post_checked
from controlplane.telemetry.store.database import StoreUnavailable, which_file
from controlplane.telemetry.store.writer import too_many_series
from wire.problems import Problem
from wire.remote_write import Bounds
from wire.write_body import Key

log = logging.getLogger(__name__)

# Series whose labels were checked too, so that they are once.
_active = ActiveSeries()


def check(source: Source, keys: Sequence[Key], bounds: Bounds, series_max: int) -> list[Problem]:
    """Every rule that the body's series break; `series_max`: how many active series their owner may have."""
    owner, rules, hashes = source.owner, source.rules_for(keys), hashes_of(keys)
    known = _active.note(owner, hashes)
    if known.all() and not rules.suspects(keys):
        return []
    checked = {key for key, is_known in zip(keys, known.tolist(), strict=True) if is_known}
    _, problems = check_series(rules, keys, checked, bounds)
    if problems:
        return problems
    count = _active.add(owner, hashes[~known], series_max)
    return [too_many_series(owner, count, series_max)] if count > series_max else []


def pass_on(url: str, raw: bytes) -> None:
    """Returns once the body is on disk, from where it is sent to `url`; without room for a spool, once it is there.

    Raises TooManyWrites where so much waits that no more is taken, Busy where neither disk nor server takes it;
    without a spool BadWrite and TooLarge, where the server refuses it for good.
    """
    if limit_bytes := rows.METRICS_SPOOL_BYTES.read():
        _keep(url, raw, limit_bytes)
    else:
        _send(url, raw)


def _keep(url: str, raw: bytes, limit_bytes: int) -> None:
    try:
        sender = sender_of(Path(settings.DATA_DIR) / FILE_NAME)
        try:
            sender.outgoing.put(raw, limit_bytes)
        finally:
            # Also where nothing more is taken: what waits there may be an earlier run's.
            sender.wake(url)
    except Full as error:
        message = f"{error}; send again"
        raise TooManyWrites(message, code="spool_full", retry_after_seconds=RETRY_AFTER_SECONDS) from error
    except StoreUnavailable as error:
        log.error("%s", error)
        raise Busy("samples cannot be kept on disk now; send again") from error


def _send(url: str, raw: bytes) -> None:
    give_back_connection()
    try:
        post_checked(url, raw)
    except BodyRefused as refused:
        message = f"the metrics server refused it: {refused}"
        if refused.too_large:
            raise TooLarge(message, code="upstream_too_large") from refused
        raise BadWrite(message, code="upstream_refused") from refused
    except NotNow as error:
        log.warning("%s", error)
        seconds = error.retry_after_seconds or RETRY_AFTER_SECONDS
        raise Busy("the metrics server takes nothing now; send again", seconds) from error


def resume() -> None:
    """Send what an earlier run left, where there is something and a server is named."""
    path = Path(settings.DATA_DIR) / FILE_NAME
    if (url := rows.REMOTE_WRITE_URL.read()) and path.exists():
        sender_of(path).wake(url)


def sender_of(path: Path) -> Sender:
    """The process's one sender of the file that has this name now. Raises StoreUnavailable.

    That of a file that was removed goes on until it has sent what was there.
    """
    return _sender_of(path, which_file(path))


@lru_cache(maxsize=16)
def _sender_of(path: Path, _file: tuple[int, int]) -> Sender:
    return Sender(path, Outgoing(path))
