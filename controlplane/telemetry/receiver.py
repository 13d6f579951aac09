"""The remote-write receiver: who writes → what → may they → keep it, here or in the external server.

204: all samples are durable; headers say how many. 400, 413: nothing was kept, and the same body will never be taken.
503, and 429 while much waits for the external server: nothing was kept; send the same again after Retry-After seconds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

from django.conf import settings
from django.http import HttpRequest
from django.utils import timezone

from controlplane.core.errors import MethodNotAllowed, TooLarge
from controlplane.core.models import Target, TargetKind
from controlplane.core.security import target_of
from controlplane.core.tokens import bearer
from controlplane.telemetry import forwarding, writers
from controlplane.telemetry import settings_rows as rows
from controlplane.telemetry.ownership import Source, TargetSource, check_series
from controlplane.telemetry.refusals import BadWrite, Busy, UnsupportedForm
from controlplane.telemetry.store import metadata
from controlplane.telemetry.store.admission import Window
from controlplane.telemetry.store.database import FILE_NAME, StoreUnavailable
from controlplane.telemetry.store.packing import pack
from controlplane.telemetry.store.writer import NotStored, Owner, SeriesRemoved, writer_of
from wire.problems import Problem
from wire.remote_write import BadBody, Body, BodyTooLarge, Bounds, decode
from wire.write_body import CONTENT_ENCODING, CONTENT_TYPE

log = logging.getLogger(__name__)

# The message of remote write 1.0.
MESSAGE = "prometheus.WriteRequest"
_SHOWN_PROBLEMS = 10
_SHOWN_CHARACTERS = 100
# Pushes within this time count as one, so that not each costs a write.
_PUSH_STEP = timedelta(seconds=5)
# A hostile body can take hundreds of MB while it is decoded: one at a time. It is work for one core in any case.
_decoding = threading.Lock()
_packer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metrics-packer")


def store_path() -> Path:
    """The embedded store's file."""
    return Path(settings.DATA_DIR) / FILE_NAME


def authenticated(request: HttpRequest) -> Source:
    """Who writes, known before its body is read. Raises Refused."""
    if request.method != "POST":
        raise MethodNotAllowed("write with POST")
    token = bearer(request.headers.get("authorization")) or ""
    if token.startswith(f"{writers.TOKEN_PREFIX}-"):
        source: Source = writers.source_of(token)
        _check_form(request)
        return source
    target = target_of(request)
    _check_form(request)
    _note_push(target)
    return TargetSource(Owner(str(target.kind), target.name))


def _check_form(request: HttpRequest) -> None:
    """Raises UnsupportedForm. A sender that is told so takes another form that it has, such as 1.0 in place of 2.0."""
    encoding = request.headers.get("content-encoding", CONTENT_ENCODING)
    if encoding != CONTENT_ENCODING:
        raise UnsupportedForm(f"send Content-Encoding: {CONTENT_ENCODING}, not {encoding[:_SHOWN_CHARACTERS]!r}")
    kind, *parameters = (part.strip() for part in (request.headers.get("content-type") or CONTENT_TYPE).split(";"))
    message = [part.removeprefix("proto=").strip('"') for part in parameters if part.startswith("proto=")]
    if kind != CONTENT_TYPE or message not in ([], [MESSAGE]):
        raise UnsupportedForm(f"send remote write 1.0: Content-Type: {CONTENT_TYPE}, or with ;proto={MESSAGE}")


def _note_push(target: Target) -> None:
    """Whether or not the samples can be kept, their gateway lives. Of a node the reports say that."""
    now = timezone.now()
    if target.kind != TargetKind.GATEWAY or (target.last_pushed_at and now - target.last_pushed_at < _PUSH_STEP):
        return
    Target.objects.filter(pk=target.pk).update(last_pushed_at=now, last_seen_at=now)


def take(source: Source, raw: bytes) -> int:
    """Keep a body whole; how many samples it has. Raises Refused; nothing of it is kept then."""
    bounds = Bounds(
        body_bytes=rows.METRICS_BODY_MAX_BYTES.read(),
        labels=rows.METRICS_LABELS_MAX.read(),
        value_length=rows.METRICS_LABEL_VALUE_MAX_CHARACTERS.read(),
    )
    body = _decoded(raw, bounds)
    if url := rows.REMOTE_WRITE_URL.read():
        _refuse(forwarding.check(source, body.keys, bounds, rows.METRICS_SERIES_PER_TARGET_MAX.read()))
        forwarding.pass_on(url, raw)
        return len(body.values)
    try:
        _store(source, body, bounds)
        if told := [each for each in body.metadata if source.describes(each.family)]:
            metadata.keep(store_path(), told)
    except NotStored as error:
        _refuse(error.problems)
    except StoreUnavailable as error:
        log.error("%s", error)
        raise Busy("the metric store cannot be written now; send again") from error
    return len(body.values)


def _decoded(raw: bytes, bounds: Bounds) -> Body:
    try:
        # Packed, a body is nearly always smaller: what is larger than this is refused unread.
        if len(raw) > bounds.body_bytes:
            raise BodyTooLarge("body_too_large", f"send at most {bounds.body_bytes} bytes at once")
        with _decoding:
            return decode(raw, bounds)
    except BodyTooLarge as error:
        raise TooLarge(str(error), code=error.reason) from error
    except BadBody as error:
        raise BadWrite(str(error), code=error.reason) from error


def _store(source: Source, body: Body, bounds: Bounds) -> None:
    writer, owner, rules = writer_of(store_path()), source.owner, source.rules_for(body.keys)
    now_ms = int(time.time() * 1000)
    window = Window(
        oldest_ms=now_ms - rows.METRICS_KEEP_DAYS.read() * 86_400_000,
        newest_ms=now_ms + rows.METRICS_FUTURE_SECONDS.read() * 1000,
        late_ms=rows.METRICS_LATE_SECONDS.read() * 1000,
    )
    samples = (body.counts, body.times_ms, body.values)
    for last_try in (False, True):
        fresh, problems = check_series(rules, body.keys, writer.known(owner), bounds)
        _refuse(problems)
        try:
            writer.write(owner, body.keys, fresh, samples, window, rows.METRICS_SERIES_PER_TARGET_MAX.read())
            break
        except SeriesRemoved:
            if last_try:
                raise Busy("series are being removed; send again") from None
    if writer.samples_written >= rows.METRICS_PACK_SAMPLES.read():
        writer.samples_written = 0
        _packer.submit(_pack, store_path(), now_ms)


def _pack(path: Path, older_than_ms: int) -> None:
    try:
        pack(path, older_than_ms)
    except StoreUnavailable:
        log.exception("samples could not be packed; they are kept unpacked")


def _refuse(problems: Sequence[Problem]) -> None:
    """Raises BadWrite with every distinct reason, if there is one."""
    distinct = list({(problem.rule, problem.message): problem for problem in problems}.values())[:_SHOWN_PROBLEMS]
    if distinct:
        raise BadWrite("; ".join(f"{p.path}: {p.message}" for p in distinct), distinct, code=distinct[0].rule)
