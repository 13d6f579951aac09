"""Lines as gateways work on them: leased, renewed, handed over. Each ends once, whoever says so and how often.

A line that may be given out is due; to lease it is to move that on, by an update that finds the row as it was read.
A gateway that dies moves nothing on, and its lines are due again. What it tells later still counts, if nobody else was
faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import NamedTuple

import msgspec
from django.db import transaction
from django.db.models import Count, F, Q, QuerySet
from django.utils import timezone

from controlplane.batches import settings_rows as rows
from controlplane.batches import waking, written
from controlplane.batches.models import RUNNING, Batch, Line, LineState, Status
from controlplane.batches.store import Store
from controlplane.core.fields import epoch_ms
from policy.batches.share import shared_out
from wire.batches import LINES_AT_ONCE, HeldLine, LeasedLine, LeaseRequest, LineResult

# A line that takes gateways with it takes no more than these.
LOST_MAX = 5
# Of the bodies in one answer, though one line may be longer by itself.
LEASE_BYTES = 8 << 20


class Due(NamedTuple):
    """A line that may be given out, as it was read."""

    pk: int
    lease: int
    due_at: datetime
    state: str
    lost: int
    size_bytes: int


# Leases


def lease(store: Store, gateway: str, asked: LeaseRequest, now: datetime) -> list[LeasedLine]:
    """Lines for what the gateway has room for, each of them its own until the lease ends. Raises OSError."""
    open_batches = Batch.objects.filter(status=Status.IN_PROGRESS, stops_at__gt=now).exclude(tenant__in=asked.resting)
    by_tenant: dict[str, list[str]] = {}
    for pk, tenant in open_batches.order_by("stops_at", "pk").values_list("pk", "tenant"):
        by_tenant.setdefault(tenant, []).append(pk)
    if not by_tenant:
        return []
    given: list[int] = []
    room, room_bytes = LINES_AT_ONCE, LEASE_BYTES
    wants = [(Q(model__in=want.models), want.lines) for want in asked.wants]
    for of_models, count in (*wants, (~Q(model__in=asked.known), asked.others)):
        for line in _claim(gateway, by_tenant, of_models, min(count, room), room_bytes, now):
            room, room_bytes = room - 1, room_bytes - line.size_bytes
            given.append(line.pk)
        if room_bytes <= 0:
            break
    return _with_bodies(store, given)


def _claim(
    gateway: str, by_tenant: dict[str, list[str]], of_models: Q, count: int, room_bytes: int, now: datetime
) -> list[Due]:
    if count <= 0:
        return []
    due = {tenant: _due(batches, of_models, count, now) for tenant, batches in by_tenant.items()}
    shares = shared_out({tenant: len(found) for tenant, found in due.items()}, _running(by_tenant, now), count)
    ends_at = now + timedelta(seconds=rows.LEASE_SECONDS.read())
    claimed = []
    with transaction.atomic():
        # In one order, so that two gateways do not wait for each other's rows.
        for line in sorted(line for tenant, share in shares.items() for line in due[tenant][:share]):
            if room_bytes <= 0:
                break
            if _is_lost_for_good(line):
                continue
            mine = _as_read(line)
            lost = 1 if line.state == LineState.LEASED else 0
            if mine.update(
                state=LineState.LEASED, due_at=ends_at, lease=F("lease") + 1, gateway=gateway, tries=F("tries") + 1,
                lost=F("lost") + lost,
            ):  # fmt: skip
                claimed.append(line)
                room_bytes -= line.size_bytes
    return claimed


def _due(batches: Sequence[str], of_models: Q, count: int, now: datetime) -> list[Due]:
    """The first lines of a tenant's batches, those first whose window ends first."""
    found: list[Due] = []
    for pk in batches:
        due = Line.objects.filter(of_models, batch_id=pk, due_at__lte=now).order_by("number")
        columns = ("pk", "lease", "due_at", "state", "lost", "size_bytes")
        found += [Due(*row) for row in due.values_list(*columns)[: count - len(found)]]
        if len(found) >= count:
            break
    return found


def _running(by_tenant: dict[str, list[str]], now: datetime) -> dict[str, int]:
    leased = Line.objects.filter(batch__tenant__in=by_tenant, state=LineState.LEASED, due_at__gt=now)
    return dict(leased.values_list("batch__tenant").annotate(Count("pk")))


def _is_lost_for_good(line: Due) -> bool:
    if line.state != LineState.LEASED or line.lost + 1 < LOST_MAX:
        return False
    _fail(
        _as_read(line),
        "gateway_lost",
        f"{LOST_MAX} gateways took the line and were not heard of again",
    )
    return True


def _as_read(line: Due) -> QuerySet[Line]:
    return Line.objects.filter(pk=line.pk, lease=line.lease, due_at=line.due_at)


class _Body(msgspec.Struct):
    body: msgspec.Raw


def _with_bodies(store: Store, claimed: Sequence[int]) -> list[LeasedLine]:
    """Raises OSError where the store is out of order, and the lines are due again as if nobody had taken them."""
    found = list(Line.objects.filter(pk__in=claimed).select_related("batch").order_by("batch_id", "number"))
    given: list[LeasedLine] = []
    try:
        for _, lines in groupby(found, key=lambda line: line.batch_id):
            given += _of_one_file(store, list(lines))
    except OSError:
        _put_back(found)
        raise
    return given


def _of_one_file(store: Store, lines: Sequence[Line]) -> Iterator[LeasedLine]:
    """Raises OSError, but not where the file is gone or holds something else: these lines have failed."""
    batch = lines[0].batch
    try:
        file = store.open(batch.input_file_id)
    except FileNotFoundError:
        for line in lines:
            _fail_lost(line)
        return
    with file:
        for line in lines:
            file.seek(line.offset_bytes)
            try:
                body = msgspec.json.decode(file.read(line.size_bytes), type=_Body).body
            except (msgspec.MsgspecError, UnicodeDecodeError):
                _fail_lost(line)
                continue
            yield LeasedLine(
                id=line.pk,
                lease=line.lease,
                batch=batch.pk,
                tenant=batch.tenant,
                endpoint=batch.endpoint,
                model=line.model,
                tries=line.tries,
                ends_at_ms=epoch_ms(batch.stops_at),
                body=body,
            )


def _fail_lost(line: Line) -> None:
    _fail(
        Line.objects.filter(pk=line.pk, lease=line.lease),
        "input_lost",
        "the batch's file is not what it was any more",
    )


def _put_back(lines: Iterable[Line]) -> None:
    with transaction.atomic():
        for line in sorted(lines, key=lambda line: line.pk):
            mine = Line.objects.filter(pk=line.pk, lease=line.lease, state=LineState.LEASED)
            mine.update(state=LineState.WAITING, gateway="", tries=F("tries") - 1, due_at=timezone.now())


def renew(held: Iterable[HeldLine], now: datetime) -> list[int]:
    """Move the ends of leases on; which of them are lost: another's by now, ended, or of a batch that stops."""
    ends_at = now + timedelta(seconds=rows.LEASE_SECONDS.read())
    leases = {line.id: line.lease for line in held}
    still = Line.objects.filter(
        pk__in=leases, state=LineState.LEASED, batch__status__in=RUNNING, batch__stops_at__gt=now
    )
    kept = [pk for pk, lease in still.values_list("pk", "lease") if leases[pk] == lease]
    with transaction.atomic():
        renewed = {
            pk
            for pk in sorted(kept)
            if Line.objects.filter(pk=pk, lease=leases[pk], state=LineState.LEASED).update(due_at=ends_at)
        }
    return sorted(leases.keys() - renewed)


# Results


def take(results: Iterable[LineResult], now: datetime) -> int:
    """End lines, or let them rest; how many ended by this call. One that had ended stays as it was."""
    by_pk = {result.id: result for result in results}
    counted = 0
    with transaction.atomic():
        for line in Line.objects.filter(pk__in=by_pk, due_at__isnull=False).order_by("pk").defer("written"):
            result = by_pk[line.pk]
            if result.outcome == "again":
                _rest(result, now)
            elif _end(line, result):
                _count(line.batch_id, result.outcome == "done")
                counted += 1
        if counted:
            waking.wake_on_commit()
    return counted


def _rest(result: LineResult, now: datetime) -> None:
    mine = Line.objects.filter(pk=result.id, lease=result.lease, state=LineState.LEASED)
    mine.update(state=LineState.WAITING, gateway="", due_at=now + timedelta(milliseconds=result.after_ms))


def _end(line: Line, result: LineResult) -> bool:
    state = LineState.DONE if result.outcome == "done" else LineState.FAILED
    if result.status:
        text = written.answered(
            line.batch_id, line.number, line.custom_id, result.status, result.request_id, result.body
        )
    else:
        text = written.unanswered(line.batch_id, line.number, line.custom_id, result.code or "failed", result.message)
    mine = Line.objects.filter(pk=line.pk, due_at__isnull=False)
    return bool(mine.update(state=state, due_at=None, gateway="", written=text))


def _count(batch_id: str, done: bool) -> None:
    """Only while it goes on: afterwards the lines are counted."""
    batch = Batch.objects.filter(pk=batch_id, status__in=RUNNING)
    batch.update(completed=F("completed") + 1) if done else batch.update(failed=F("failed") + 1)


# Lines that nobody answers


def cancel_waiting(batch_id: str) -> None:
    """Those that nobody has begun."""
    waiting = Line.objects.filter(batch_id=batch_id, state=LineState.WAITING)
    waiting.update(state=LineState.CANCELLED, due_at=None)


def give_up(batch_id: str, state: LineState, now: datetime) -> bool:
    """Those that nobody works on; whether all have ended now."""
    open_lines = Line.objects.filter(batch_id=batch_id, due_at__isnull=False)
    open_lines.filter(Q(state=LineState.WAITING) | Q(due_at__lte=now)).update(state=state, due_at=None, gateway="")
    return not open_lines.exists()


def _fail(mine: QuerySet[Line], code: str, message: str) -> None:
    for line in mine:
        text = written.unanswered(line.batch_id, line.number, line.custom_id, code, message)
        if mine.filter(pk=line.pk).update(state=LineState.FAILED, due_at=None, gateway="", written=text):
            _count(line.batch_id, done=False)
            waking.wake_on_commit()
