"""Passing checked bodies on to an external server, as they came."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from http import HTTPStatus

from controlplane.core.errors import TooLarge
from controlplane.telemetry.ownership import check_series
from controlplane.telemetry.refusals import RETRY_AFTER_SECONDS, BadWrite, Busy, TooManyWrites
from controlplane.telemetry.store.writer import Owner
from controlplane.telemetry.upstream import UpstreamAway, call
from wire.problems import Problem
from wire.remote_write import Bounds
from wire.write_body import CONTENT_ENCODING, CONTENT_TYPE, VERSION, VERSION_HEADER, Key

log = logging.getLogger(__name__)

# Series whose labels were checked, by owner. Emptied when full: they are then checked again.
_REMEMBERED_MAX = 500_000
_SHOWN_CHARACTERS = 500
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
    """Returns once the server has taken the body. Raises Refused with the server's own verdict on retrying."""
    headers = {"Content-Type": CONTENT_TYPE, "Content-Encoding": CONTENT_ENCODING, VERSION_HEADER: VERSION}
    try:
        answer = call("POST", url, raw, {**headers, "User-Agent": "headworks"})
    except UpstreamAway as error:
        log.warning("%s", error)
        raise Busy("the metrics server does not answer; send again") from error
    if HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
        return
    said = answer.body[:_SHOWN_CHARACTERS].decode(errors="replace").strip()
    retry_after = answer.headers.get("retry-after", "")
    seconds = int(retry_after) if retry_after.isascii() and retry_after.isdigit() else RETRY_AFTER_SECONDS
    match answer.status:
        case HTTPStatus.BAD_REQUEST:
            raise BadWrite(f"the metrics server refused it: {said}", code="upstream_refused")
        case HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            raise TooLarge(f"the metrics server refused it: {said}", code="upstream_too_large")
        case HTTPStatus.TOO_MANY_REQUESTS:
            raise TooManyWrites(f"the metrics server takes no more now: {said}", retry_after_seconds=seconds)
    # A wrong address or missing right is ours to repair, so that the writer shall keep what it has.
    log.error("the metrics server answered a write with %s: %s", answer.status, said)
    raise Busy(f"the metrics server answered {answer.status}; send again", seconds)
