"""What is too old or too much goes, and its space with it."""

from __future__ import annotations

import time

import pytest
from django.db import connection

from controlplane.core.tokens import new_token
from controlplane.telemetry.decisions.models import Decision, MinuteSketch
from controlplane.telemetry.decisions.retention import forget, give_space_back
from controlplane.telemetry.tasks import forget_decisions

_HOUR_MS = 3_600_000


def stored(*received_ms: int) -> None:
    Decision.objects.bulk_create(
        Decision(
            gateway="gw-1",
            request_id=new_token("r"),
            at_ms=0,
            received_ms=at_ms,
            revision=1,
            stage="route",
            reason="no_route",
            status=400,
            tenant="acme",
            priority_class="batch",
            pool="chat",
            message="m" * 500,
        )
        for at_ms in received_ms
    )


def left() -> list[int]:
    return list(Decision.objects.order_by("pk").values_list("received_ms", flat=True))


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("before_ms", "rows_max", "kept"),
    [
        (0, 10, [1, 2, 3, 4, 5]),
        (3, 10, [3, 4, 5]),
        (0, 2, [4, 5]),
        (4, 4, [4, 5]),
        (9, 10, []),
        (0, 5, [1, 2, 3, 4, 5]),
    ],
)
def test_what_is_too_old_or_too_much_goes(before_ms: int, rows_max: int, kept: list[int]) -> None:
    stored(1, 2, 3, 4, 5)
    assert forget(Decision, before_ms, rows_max) == 5 - len(kept)
    assert left() == kept


@pytest.mark.django_db
def test_more_than_one_step_of_rows_goes() -> None:
    stored(*range(2500))
    assert forget(Decision, 2300, 10_000) == 2300
    assert left() == list(range(2300, 2500))


@pytest.mark.django_db
def test_rows_are_counted_where_numbers_have_gaps() -> None:
    stored(*range(10))
    Decision.objects.filter(received_ms__in=(7, 8)).delete()
    forget(Decision, 0, 3)
    assert left() == [5, 6, 9]


@pytest.mark.django_db
def test_the_worker_forgets_both_by_their_age() -> None:
    now_ms = int(time.time() * 1000)
    stored(now_ms - 25 * _HOUR_MS, now_ms - 23 * _HOUR_MS)
    for minute, days in ((0, 31), (60_000, 29)):
        MinuteSketch.objects.create(
            minute_ms=minute, received_ms=now_ms - days * 24 * _HOUR_MS, arrivals=1, lengths=b"\x93\x90\x90\x90"
        )
    assert forget_decisions() == 2
    assert left() == [now_ms - 23 * _HOUR_MS]
    assert MinuteSketch.objects.get().minute_ms == 60_000


@pytest.mark.django_db(transaction=True)
def test_space_is_given_back() -> None:
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL's autovacuum sees to it")

    def pages() -> int:
        with connection.cursor() as cursor:
            return int(cursor.execute("PRAGMA page_count").fetchone()[0])

    before = pages()
    stored(*range(8000))
    grown = pages()
    assert grown > 2 * before
    forget(Decision, 8000, 10_000)
    assert pages() == grown
    give_space_back()
    assert pages() < before + (grown - before) // 4
