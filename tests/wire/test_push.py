from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from tests.services import free_port
from tests.wire.fake_control import TOKEN
from tests.wire.receiver import CUT, Answer, Receiver, receiver
from tests.wire.target_probe import QUICK
from wire import push
from wire.messages import Event
from wire.push import EventPush, MetricPush
from wire.spool import Spool
from wire.target import TargetClient
from wire.write_body import Series

NOW_MS = 1_790_000_000_000


def sample(value: float) -> list[Series]:
    labels = {"__name__": "headworks_engine_requests_waiting", "node": "n-1"}
    return [Series(labels, [(NOW_MS + int(value) * 1000, value)])]


def several(count: int) -> list[Series]:
    return [Series({"__name__": "gauge", "gpu": str(number)}, [(NOW_MS, float(number))]) for number in range(count)]


def event(number: int) -> Event:
    return Event(f"event-{number:05d}", NOW_MS, "xid", "GPU-1", "critical", "XID 79", "n-1")


@pytest.fixture
async def control() -> AsyncIterator[Receiver]:
    async with receiver() as running:
        yield running


class Sender:
    """Both pushes of one target and their spools, as after a start of its process."""

    def __init__(self, url: str, state_dir: Path, *, metrics_bytes: int = 1 << 20) -> None:
        self.client = TargetClient(control_url=url, state_dir=state_dir, on_snapshot=lambda snapshot, revision: None)
        self.spools = [
            Spool(state_dir / "metrics.spool", limit_bytes=metrics_bytes),
            Spool(state_dir / "events.spool", limit_bytes=1 << 20),
        ]
        self.metrics = MetricPush(self.client, self.spools[0], QUICK)
        self.events = EventPush(self.client, self.spools[1], QUICK)

    @property
    def waiting(self) -> int:
        return sum(spool.waiting for spool in self.spools)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self.metrics.run()), asyncio.create_task(self.events.run())]
        try:
            yield
            assert not any(task.done() for task in tasks), "a push ended by itself"
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.stop()

    async def stop(self) -> None:
        await self.client.close()
        for spool in self.spools:
            spool.close()


@pytest.fixture
async def sender(control: Receiver, state_dir: Path) -> AsyncIterator[Sender]:
    sender = Sender(control.url, state_dir)
    async with sender.running():
        yield sender


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process grows."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_samples_are_sent_at_once_as_remote_write(control: Receiver, sender: Sender):
    await sender.metrics.put(several(3))
    assert control.writes == [several(3)]
    assert sender.waiting == 0
    headers = control.headers[0]
    assert headers["Authorization"] == f"Bearer {TOKEN}"
    assert headers["Content-Type"] == "application/x-protobuf"
    assert headers["Content-Encoding"] == "snappy"
    assert headers["X-Prometheus-Remote-Write-Version"] == "0.1.0"


async def test_what_was_measured_while_the_control_plane_was_away_is_sent_oldest_first_also_after_a_restart(
    state_dir: Path,
):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    first = Sender(url, state_dir)
    async with first.running():
        for value in range(3):
            await first.metrics.put(sample(value))
        assert first.waiting == 3
    again = Sender(url, state_dir)
    async with again.running():
        await again.metrics.put(sample(3))
        async with receiver(port) as control:
            await control.until("all samples", lambda: again.waiting == 0)
            await again.metrics.put(sample(4))
            assert control.values == [0, 1, 2, 3, 4]


async def test_a_body_that_is_refused_for_good_blocks_no_other(
    control: Receiver, sender: Sender, caplog: pytest.LogCaptureFixture
):
    control.judge = lambda body: Answer(400, "out_of_order") if body[0].samples[0][1] == 1 else None
    control.answers.extend([Answer(503)] * 3)
    for value in (0, 1, 1, 2):
        await sender.metrics.put(sample(value))
    await control.until("the spool to be empty", lambda: sender.waiting == 0)
    assert control.values == [0, 2]
    assert len([record for record in caplog.records if "out_of_order" in record.message]) == 1


async def test_a_body_that_is_too_large_is_sent_in_halves(control: Receiver, sender: Sender):
    control.judge = lambda body: Answer(413, "body_too_large") if len(body) > 2 else None
    await sender.metrics.put(several(7))
    assert sorted(control.values) == [0, 1, 2, 3, 4, 5, 6]
    assert max(map(len, control.writes)) <= 2
    assert sender.waiting == 0


async def test_a_single_series_that_is_too_large_is_dropped(
    control: Receiver, sender: Sender, caplog: pytest.LogCaptureFixture
):
    control.judge = lambda body: Answer(413, "too_many_samples") if any(len(s.samples) > 1 for s in body) else None
    large = Series({"__name__": "large"}, [(NOW_MS, 1.0), (NOW_MS + 1, 2.0)])
    await sender.metrics.put([*several(2), large])
    assert control.values == [0, 1]
    assert "too_many_samples" in caplog.text
    assert sender.waiting == 0


@pytest.mark.parametrize("status", [429, 503])
async def test_it_comes_again_no_sooner_than_it_is_asked_to(control: Receiver, sender: Sender, status: int):
    control.answers.extend([Answer(503), Answer(status, headers={"Retry-After": "1"})])
    await sender.metrics.put(sample(1))
    await control.until("the sample", lambda: control.values == [1])
    assert control.asked_at[2] - control.asked_at[1] >= 1


@pytest.mark.parametrize("given", ["soon", "Wed, 21 Oct 2065 07:28:00 GMT", "-5", "²"])
async def test_a_retry_after_that_is_no_number_of_seconds_is_passed_over(control: Receiver, sender: Sender, given: str):
    control.answers.extend([Answer(503, headers={"Retry-After": given})] * 2)
    await sender.metrics.put(sample(1))
    await control.until("the sample", lambda: control.values == [1])


@pytest.mark.parametrize(("status", "code"), [(401, "unknown_token"), (403, "revoked"), (404, ""), (426, "protocol")])
async def test_what_refuses_the_sender_and_not_the_body_loses_nothing(
    control: Receiver, sender: Sender, status: int, code: str
):
    control.answers.extend([Answer(status, code)] * 3)
    await sender.metrics.put(sample(1))
    sender.events.put(event(1))
    await control.until("sample and event", lambda: control.values == [1] and control.event_ids == ["event-00001"])


async def test_a_control_plane_that_says_nothing_does_not_hold_the_caller(
    control: Receiver, sender: Sender, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(push, "_AT_ONCE_SECONDS", 0.05)
    control.answering.clear()
    async with asyncio.timeout(5):
        await sender.metrics.put(sample(1))
        await sender.metrics.put(sample(2))
    assert sender.waiting == 2
    control.answering.set()
    await control.until("both samples", lambda: control.values == [1, 2])


async def test_with_a_full_disk_samples_are_lost_with_a_word_and_sent_again_once_it_is_back(
    control: Receiver, sender: Sender, caplog: pytest.LogCaptureFixture
):
    with full_disk(), caplog.at_level(logging.INFO, "headworks.push"):
        control.answers.extend([Answer(503)] * 3)
        for value in (1, 2, 3, 4):
            await sender.metrics.put(sample(value))
    assert control.values == [4]
    said = [record.message for record in caplog.records if record.name == "headworks.push"]
    assert len(said) == 2
    assert said[0].startswith("samples are lost, as they can be neither sent nor spooled: ")
    assert said[1] == "samples are taken again"


@pytest.mark.parametrize(
    "garbage",
    [
        Answer(200, body=b"<html>a proxy's page</html>"),
        Answer(200, body=b"\xff\xfe\x00"),
        Answer(200, body=b'{"taken": "event-00001"}'),
        Answer(200, body=b"[" * 100_000),
        Answer(200, body=b" " * 2_000_000),
        Answer(500, body=b"x" * 2_000_000),
        Answer(502, body=b"{", headers={"Content-Type": "application/problem+json"}),
    ],
)
async def test_an_event_is_kept_until_an_answer_says_that_it_was_taken(
    control: Receiver, sender: Sender, garbage: Answer
):
    control.answers.extend([garbage] * 3)
    sender.events.put(event(1))
    await control.until("the event", lambda: control.event_ids == ["event-00001"])
    assert len(control.asked_at) == 4


async def test_an_answer_to_samples_that_never_ends_is_read_no_further(control: Receiver, sender: Sender):
    control.answers.extend([Answer(200, body=b"x" * 2_000_000)] * 2)
    await sender.metrics.put(sample(1))
    await control.until("the sample", lambda: control.values == [1])
    assert len(control.asked_at) == 3


async def test_samples_that_overflow_their_spool_push_out_no_event(state_dir: Path):
    port = free_port()
    away = Sender(f"http://127.0.0.1:{port}", state_dir, metrics_bytes=50_000)
    async with away.running():
        away.events.put(event(0))
        for value in range(40):
            await away.metrics.put([*sample(value), *several(200)])
        away.events.put(event(1))
        assert away.spools[0].dropped > 0
        async with receiver(port) as control:
            await control.until("all that waits", lambda: away.waiting == 0)
    assert control.event_ids == ["event-00000", "event-00001"]
    kept = [body[0].samples[0][1] for body in control.writes]
    assert kept == list(range(40))[-len(kept) :], "the oldest samples went"


async def test_what_a_spool_holds_leaves_in_its_order_whatever_the_clock_said(state_dir: Path):
    port = free_port()
    hour_ms, day_ms = 3_600_000, 86_400_000
    times_ms = [NOW_MS, NOW_MS - hour_ms, NOW_MS + day_ms, 0, -1, NOW_MS + 1]
    away = Sender(f"http://127.0.0.1:{port}", state_dir)
    async with away.running():
        for at_ms in times_ms:
            await away.metrics.put([Series({"__name__": "gauge"}, [(at_ms, 1.0)])])
        async with receiver(port) as control:
            await control.until("all samples", lambda: away.waiting == 0)
    assert [body[0].samples[0][0] for body in control.writes] == times_ms


async def test_an_absence_is_said_once(control: Receiver, sender: Sender, caplog: pytest.LogCaptureFixture):
    def said() -> list[str]:
        return [record.message for record in caplog.records if record.name == "headworks.push"]

    with caplog.at_level(logging.INFO, "headworks.push"):
        control.answers.extend([Answer(503, "unavailable")] * 6)
        await sender.metrics.put(sample(1))
        # The word comes after the sample's answer.
        await control.until("the sample", lambda: control.values == [1] and said()[-1:] == ["samples are taken again"])
    assert said() == [
        "samples are kept until they can be sent: answered 503: unavailable, said the test",
        "samples are taken again",
    ]


async def test_an_event_is_on_disk_when_put_returns_and_sent_after_a_restart(control: Receiver, state_dir: Path):
    first = Sender(control.url, state_dir)
    first.events.put(event(1))
    await first.stop()
    again = Sender(control.url, state_dir)
    async with again.running():
        await control.until("the event", lambda: control.event_ids == ["event-00001"])
        again.events.put(event(2))
        await control.until("the next", lambda: control.event_ids == ["event-00001", "event-00002"])
        await control.until("the spool to be empty", lambda: again.waiting == 0)
    assert control.events[0] == [
        {
            "id": "event-00001",
            "at": NOW_MS,
            "node": "n-1",
            "kind": "xid",
            "subject": "GPU-1",
            "severity": "critical",
            "detail": "XID 79",
        }
    ]


async def test_events_go_in_order_in_batches_of_at_most_100(control: Receiver, sender: Sender):
    for number in range(250):
        sender.events.put(event(number))
    await control.until("all events", lambda: sender.waiting == 0)
    assert control.event_ids == [f"event-{number:05d}" for number in range(250)]
    assert max(map(len, control.events)) == 100


async def test_an_event_whose_answer_was_lost_is_sent_again_with_its_id(control: Receiver, sender: Sender):
    control.answers.append(Answer(CUT))
    sender.events.put(event(1))
    await control.until("the second sending", lambda: len(control.events) == 2)
    assert control.event_ids == ["event-00001", "event-00001"]


@pytest.mark.parametrize(("status", "code"), [(400, "malformed"), (422, "invalid"), (403, "foreign_node")])
async def test_one_bad_event_takes_no_other_with_it(
    control: Receiver, sender: Sender, caplog: pytest.LogCaptureFixture, status: int, code: str
):
    bad = "event-00007"
    control.judge = lambda body: Answer(status, code) if any(event["id"] == bad for event in body) else None
    for number in range(20):
        sender.events.put(event(number))
    await control.until("the others", lambda: sender.waiting == 0)
    assert control.event_ids == [f"event-{number:05d}" for number in range(20) if number != 7]
    assert [record for record in caplog.records if bad in record.message and code in record.message]


async def test_an_event_that_the_answer_does_not_name_is_dropped_with_a_word(
    control: Receiver, sender: Sender, caplog: pytest.LogCaptureFixture
):
    control.passed_over.add("event-00001")
    sender.events.put(event(1))
    sender.events.put(event(2))
    await control.until("both to be done with", lambda: sender.waiting == 0)
    assert [record.message for record in caplog.records if record.name == "headworks.push"] == [
        "event event-00001 is dropped: the control plane answered, and did not take it"
    ]


async def test_with_a_full_disk_events_still_arrive(control: Receiver, sender: Sender):
    with full_disk():
        control.answers.append(Answer(503))
        for number in range(3):
            sender.events.put(event(number))
        await control.until("the events", lambda: len(control.event_ids) == 3)
    assert control.event_ids == ["event-00000", "event-00001", "event-00002"]


async def test_a_record_that_is_no_event_is_dropped(control: Receiver, sender: Sender):
    control.judge = lambda body: (
        Answer(400, "malformed") if any(not str(event.get("id", "")).startswith("event-") for event in body) else None
    )
    sender.spools[1].put([b'{"what": "is this"}', b'{"id": 5}'])
    sender.events.put(event(1))
    await control.until("the event", lambda: control.event_ids[-1:] == ["event-00001"])
    await control.until("the spool to be empty", lambda: sender.waiting == 0)
