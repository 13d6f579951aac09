from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.alerts.delivery_plan import (
    LASTING,
    RETRY_AFTER_MAX,
    RETRY_BASE,
    Limits,
    Outcome,
    Reason,
    Waiting,
    is_overtaken,
    judge,
    next_attempt,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LIMITS = Limits(retry_max=timedelta(minutes=5), give_up=timedelta(days=1))
FAILED = Outcome(Reason.SERVER_ERROR, "answered 500")


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (200, Reason.TAKEN), (202, Reason.TAKEN), (204, Reason.TAKEN), (301, Reason.REDIRECTED),
        (307, Reason.REDIRECTED), (400, Reason.REJECTED), (401, Reason.REJECTED), (404, Reason.REJECTED),
        (410, Reason.REJECTED), (408, Reason.BUSY), (429, Reason.BUSY), (503, Reason.BUSY),
        (500, Reason.SERVER_ERROR), (502, Reason.SERVER_ERROR), (599, Reason.SERVER_ERROR),
    ],
)  # fmt: skip
def test_a_status_has_a_named_reason(status, reason):
    assert judge(status, None, NOW).reason is reason


@pytest.mark.parametrize(
    ("header", "pause"),
    [
        ("7", timedelta(seconds=7)),
        ("0", timedelta(0)),
        (format_datetime(NOW + timedelta(seconds=90), usegmt=True), timedelta(seconds=90)),
        (format_datetime(NOW - timedelta(days=3), usegmt=True), timedelta(0)),
        ("999999999999999", RETRY_AFTER_MAX),
        (format_datetime(NOW + timedelta(days=3), usegmt=True), RETRY_AFTER_MAX),
        ("Sun, 01 Mar 2026 12:00:05 -0000", timedelta(seconds=5)),
        ("soon", None),
        ("Sun, 01 Mar 99999999999999999999 12:00:05 GMT", None),
        ("Sun, 01 Mar 2026 99999999999999999999:00:05 GMT", None),
        ("-5", None),
        ("٣", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_read_in_both_its_forms_and_bounded(header, pause):
    assert judge(429, header, NOW).retry_after == pause


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_a_retry_falls_between_now_and_a_bound_that_doubles(attempts, draw):
    bound = min(RETRY_BASE * 2 ** min(attempts - 1, 30), LIMITS.retry_max)
    due_at = next_attempt(FAILED, attempts, NOW, NOW, LIMITS, draw)
    assert due_at is not None
    assert NOW <= due_at <= NOW + bound


def test_a_retry_comes_no_sooner_than_the_receiver_asked():
    busy = Outcome(Reason.BUSY, "answered 429", timedelta(seconds=40))
    assert next_attempt(busy, 1, NOW, NOW, LIMITS, 0.5) == NOW + timedelta(seconds=40)


@pytest.mark.parametrize("reason", sorted(LASTING))
def test_what_a_person_must_mend_is_tried_again_at_the_longest_pause_and_not_given_up(reason):
    assert next_attempt(Outcome(reason), 1, NOW, NOW, LIMITS, 0.5) == NOW + LIMITS.retry_max / 2


@given(st.timedeltas(timedelta(0), timedelta(days=2)), st.integers(1, 100), st.floats(0, 1, exclude_max=True))
def test_nothing_is_tried_beyond_the_bound_on_its_age(age, attempts, draw):
    due_at = next_attempt(FAILED, attempts, NOW - age, NOW, LIMITS, draw)
    if age >= LIMITS.give_up:
        assert due_at is None
    assert due_at is None or due_at < NOW - age + LIMITS.give_up


def test_a_message_that_is_wrong_itself_is_given_up_at_once():
    assert next_attempt(Outcome(Reason.INVALID), 1, NOW, NOW, LIMITS, 0.5) is None


@pytest.mark.parametrize(
    ("message", "later", "told", "overtaken"),
    [
        ("first", [], False, False),
        ("first", ["changed"], False, True),
        ("changed", ["repeat"], True, True),
        ("repeat", ["resolved"], True, True),
        ("acknowledged", ["resolved"], True, True),
        # Whoever hears of the end must have heard of the beginning.
        ("first", ["resolved"], False, False),
        ("changed", ["resolved"], False, False),
        # That somebody has seen it is nothing that a later message says.
        ("acknowledged", ["changed"], True, False),
        ("first", ["acknowledged"], False, False),
        ("resolved", [], True, False),
    ],
)
def test_a_message_is_overtaken_by_what_says_as_much(message, later, told, overtaken):
    def waiting(occasion: str) -> Waiting:
        return Waiting(occasion, "resolved" if occasion == "resolved" else "firing")

    assert is_overtaken(waiting(message), [waiting(one) for one in later], told=told) is overtaken
