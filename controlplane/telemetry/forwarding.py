"""Passing checked bodies on to an external server: over a spool on disk, or at once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from django.conf import settings

from controlplane.core.errors import TooLarge
from controlplane.telemetry import settings_rows as rows
from controlplane.telemetry.outgoing import FILE_NAME, Full, Outgoing
from controlplane.telemetry.ownership import check_series
from controlplane.telemetry.refusals import RETRY_AFTER_SECONDS, BadWrite, Busy, TooManyWrites
from controlplane.telemetry.sending import BodyRefused, NotNow, Sender, post_checked
from controlplane.telemetry.store.database import StoreUnavailable
from controlplane.telemetry.store.writer import Owner
from wire.problems import Problem
from wire.remote_write import Bounds
from wire.write_body import Key

log = logging.getLogger(__name__)

# Series whose labels were checked, by owner. Emptied when full: they are then checked again.
_REMEMBERED_MAX = 500_000
_checked: dict[Owner, set[Key]] = {}


def check(owner: Owner, keys: Sequence[Key], bounds: Bounds) -> list[Problem]:
    """Every rule that the body's series break."""
    known = _checked.get(owner, set())
    fresh, problems = check_series(owner, keys, known, bounds)
    if not problems and fresh:
        if sum(map(len, _checked.values())) + len(fresh) > _REMEMBERED_MAX:
            _checked.clear()
        # A new set, as another thread may be reading the old one.
        _checked[owner] = known | fresh.keys()
    return problems


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
    sender = sender_of(Path(settings.DATA_DIR) / FILE_NAME)
    try:
        sender.outgoing.put(raw, limit_bytes)
    except Full as error:
        message = f"{error}; send again"
        raise TooManyWrites(message, code="spool_full", retry_after_seconds=RETRY_AFTER_SECONDS) from error
    except StoreUnavailable as error:
        log.error("%s", error)
        raise Busy("samples cannot be kept on disk now; send again") from error
    finally:
        # Also where nothing more is taken: what waits there may be an earlier run's.
        sender.wake(url)


def _send(url: str, raw: bytes) -> None:
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


@lru_cache(maxsize=16)
def sender_of(path: Path) -> Sender:
    """The process's one sender of a file."""
    return Sender(path, Outgoing(path))
