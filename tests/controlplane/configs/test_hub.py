"""One round of the hub, without its thread: what it tells the streams of this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from django.utils import timezone

from controlplane.configs import publisher, stream
from controlplane.configs.head import Head
from controlplane.configs.heads import Heads
from controlplane.configs.history import Damaged
from controlplane.configs.hub import Hub
from controlplane.configs.models import Fragment, Revision, TargetState
from controlplane.configs.publisher import publish
from controlplane.configs.streams import Opener, Stream
from controlplane.core.models import Target
from wire.messages import PatchEvent

OLD = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def hub(newest: Callable[[], Heads]) -> Hub:
    newest()
    hub = Hub()
    hub._round()
    return hub


def opened(hub: Hub, target: Target, loop: asyncio.AbstractEventLoop) -> Stream:
    """A stream of this process that was just sent the newest revision."""
    expires_at = target.token_expires_at.timestamp()
    opener = Opener(target.enrolled_at, target.token_hash)
    reader = Stream(target.pk, target.kind, target.name, opener, expires_at, loop)
    hub.streams.add(reader)
    assert hub.encoded is not None
    assert reader.next_event(hub.encoded, 0, time.monotonic()) is not None
    return reader


def waits(reader: Stream) -> bool:
    return reader.patience_seconds(time.monotonic()) is not None


def test_an_ack_that_another_process_stored_is_seen_whatever_its_clock(
    hub: Hub, target_of: Any, loop: asyncio.AbstractEventLoop
) -> None:
    now = timezone.now()
    ahead, behind = target_of().row, target_of(name="gw-2").row
    reader = opened(hub, behind, loop)
    TargetState.objects.create(target=ahead, revision=1, acked_at=now + timedelta(seconds=30))
    hub._round()
    assert waits(reader)
    TargetState.objects.update_or_create(target=behind, defaults={"revision": 1, "acked_at": now})
    hub._round()
    assert not waits(reader)


def test_a_refusal_is_an_answer_and_what_was_answered_before_is_none(
    hub: Hub, target_of: Any, loop: asyncio.AbstractEventLoop
) -> None:
    row = target_of().row
    TargetState.objects.create(target=row, revision=0, acked_at=timezone.now())
    reader = opened(hub, row, loop)
    hub._round()
    assert waits(reader)
    TargetState.objects.filter(target=row).update(error_revision=1)
    hub._round()
    assert not waits(reader)


def test_an_answer_to_an_older_push_does_not_let_the_reader_off_the_newer_one(
    hub: Hub, target_of: Any, loop: asyncio.AbstractEventLoop
) -> None:
    reader = opened(hub, target_of().row, loop)
    assert hub.encoded is not None
    Fragment.objects.create(section="tenants", key="a", content={"weight": 1})
    publish()
    hub._round()
    pushed_at = time.monotonic() + 10
    assert reader.next_event(hub.encoded, 0, pushed_at) is not None
    reader.acknowledged(1)
    assert reader.awaited_revision == 2
    assert reader.over(pushed_at + 59, 0) is None
    assert reader.over(pushed_at + 61, 0) == "nothing was acknowledged"


def test_revisions_that_a_reader_was_too_slow_for_come_as_one_patch(
    hub: Hub, target_of: Any, loop: asyncio.AbstractEventLoop
) -> None:
    reader = opened(hub, target_of().row, loop)
    for key in ("a", "b"):
        Fragment.objects.create(section="tenants", key=key, content={"weight": 1})
        publish()
        hub._round()
        assert hub.encoded is not None
        assert reader.next_event(hub.encoded, 0, time.monotonic()) is None
    reader.acknowledged(1)
    assert hub.encoded is not None
    event = reader.next_event(hub.encoded, 0, time.monotonic())
    assert event is not None
    patch = msgspec.json.decode(event.partition(b"data: ")[2], type=PatchEvent)
    assert (patch.from_revision, patch.revision, sorted(patch.patch["tenants"])) == (1, 3, ["a", "b"])


def test_a_damaged_revision_does_not_keep_a_revoked_target_connected(
    hub: Hub, target_of: Any, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = target_of().row
    reader = opened(hub, row, loop)
    Fragment.objects.create(section="tenants", key="a", content={"weight": 1})
    publish()
    Revision.objects.filter(number=2).update(patch={"tenants": {"a": {"weight": 2}}})
    Target.objects.filter(pk=row.pk).update(revoked_at=timezone.now())
    monkeypatch.setattr(publisher, "publish", lambda known: None)
    with pytest.raises(Damaged):
        hub._round()
    assert reader.closed


def test_a_target_that_was_revoked_while_the_database_was_away_is_found(
    hub: Hub, target_of: Any, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = timezone.now()
    with monkeypatch.context() as past:
        past.setattr(timezone, "now", lambda: now - timedelta(minutes=10))
        row = target_of().row
        reader = opened(hub, row, loop)
        hub._round()
    Target.objects.filter(pk=row.pk).update(revoked_at=now - timedelta(minutes=5))
    hub._round()
    assert reader.closed


@pytest.mark.parametrize(
    "change",
    [
        {"enrolled_at": OLD, "token_hash": "of another process"},
        {"token_hash": "of the token that took its place"},
        {"revoked_at": OLD},
    ],
    ids=["enrolled anew by a clock that was set back", "its token replaced", "revoked by such a clock"],
)
def test_a_stream_that_lost_its_ground_long_ago_by_the_clock_ends_at_the_next_beat(
    hub: Hub, target_of: Any, loop: asyncio.AbstractEventLoop, change: dict[str, Any]
) -> None:
    row, other = target_of().row, target_of(name="gw-2").row
    reader, bystander = opened(hub, row, loop), opened(hub, other, loop)
    hub._round()
    Target.objects.filter(pk=row.pk).update(**change)
    hub._beaten = 0.0
    hub._round()
    assert reader.closed
    assert not bystander.closed


def test_a_clock_that_was_set_back_a_little_does_not_keep_the_process_before_connected(
    hub: Hub, target_of: Any, loop: asyncio.AbstractEventLoop
) -> None:
    row = target_of().row
    reader = opened(hub, row, loop)
    Target.objects.filter(pk=row.pk).update(enrolled_at=row.enrolled_at - timedelta(seconds=5), token_hash="other")
    hub._round()
    assert reader.closed


def test_what_a_reader_does_not_hold_is_followed_by_the_whole_but_not_at_once_again(
    hub: Hub, target_of: Any, loop: asyncio.AbstractEventLoop
) -> None:
    reader = opened(hub, target_of().row, loop)
    now = time.monotonic()
    assert hub.encoded is not None
    reader.forget()
    # One that answers every whole with a wrong hash must not be sent another for each answer.
    assert reader.next_event(hub.encoded, 0, now) is None
    again = reader.next_event(hub.encoded, 0, now + 6)
    assert again is not None
    assert again.startswith(b"event: snapshot")
    assert reader.over(now + 62, 0) == "nothing was acknowledged"


def test_slices_are_not_cut_while_others_wait_to_open_a_stream(
    hub: Hub, target_of: Any, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(hub, target_of().row, loop)
    locked: list[bool] = []

    def concerns(self: Stream, head: Head, live_gateways: int) -> bool:
        locked.append(hub.streams._lock.locked())
        return False

    monkeypatch.setattr(Stream, "concerns", concerns)
    assert hub.encoded is not None
    hub.streams.announce(hub.encoded.head, 0)
    assert locked == [False]


async def test_a_stream_that_is_closed_while_it_opens_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub()
    now = timezone.now()
    opening = Stream(1, "gateway", "gw-1", Opener(now, ""), now.timestamp() + 60, asyncio.get_running_loop())
    monkeypatch.setattr(stream, "hub", hub)
    monkeypatch.setattr(stream, "_open", lambda scope, loop: opening)
    # Revoked as soon as it is known.
    monkeypatch.setattr(hub.streams, "add", lambda added: setattr(added, "closed", True))
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError("the reader stays")

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async with asyncio.timeout(10):
        await stream.config_stream({}, receive, send)
    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


def test_a_stream_that_opens_and_ends_between_two_rounds_has_come_too(
    hub: Hub, target_of: Any, loop: asyncio.AbstractEventLoop
) -> None:
    row, other = target_of().row, target_of(name="gw-2").row
    for _ in range(2):
        opened(hub, other, loop)
        hub.streams.remove(opened(hub, row, loop))
        hub._round()
        hub._round()
    states = {state.target_id: state for state in TargetState.objects.all()}
    assert [len(states[target.pk].turned_at_ms) for target in (row, other)] == [2, 2]
    assert [states[target.pk].stream_seen_at is None for target in (row, other)] == [True, False]
