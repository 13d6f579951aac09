"""What waits for the external server: kept through crashes, bounded, sent in order, whatever the server answers."""

from __future__ import annotations

import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client import Counter, Gauge

from controlplane.telemetry.metrics import LOST_BODIES, SPOOL_BYTES
from controlplane.telemetry.outgoing import FILE_NAME, Full, Outgoing
from controlplane.telemetry.sending import Sender
from controlplane.telemetry.store.database import StoreUnavailable
from controlplane.telemetry.upstream import UpstreamAway, call
from tests.controlplane.telemetry.filling import named
from tests.controlplane.telemetry.upstreams import ToldServer
from tests.services import free_port, wait_for
from wire.pace import Pace
from wire.write_body import Series, encode

MIB = 1 << 20
QUICK = Pace(retry_base_seconds=0.01, retry_cap_seconds=0.05)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / FILE_NAME


@pytest.fixture
def outgoing(file: Path) -> Iterator[Outgoing]:
    made = Outgoing(file)
    yield made
    made.close()


@pytest.fixture
def server() -> Iterator[ToldServer]:
    with ToldServer() as told:
        yield told


@pytest.fixture
def sender(file: Path) -> Iterator[Callable[[], Sender]]:
    """Each is as one of another process: with a connection of its own."""
    made: list[Sender] = []

    def make() -> Sender:
        made.append(Sender(file, Outgoing(file), QUICK))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def body(name: str, time_ms: int = 1000) -> bytes:
    return encode([named(name, [(time_ms, 1.0)])])


def emptied(sender: Sender) -> None:
    wait_for(lambda: not sender.outgoing.waits(), 20, "everything to be sent")


def test_bodies_come_out_in_the_order_in_which_they_went_in(outgoing):
    for number in range(5):
        outgoing.put(b"%d" % number, MIB)
    taken = outgoing.oldest(3)
    assert [packed for _, packed in taken] == [b"0", b"1", b"2"]
    outgoing.remove(taken[-1][0])
    assert [packed for _, packed in outgoing.oldest(MIB)] == [b"3", b"4"]


def test_a_body_larger_than_a_batch_comes_alone(outgoing):
    outgoing.put(bytes(100), MIB)
    outgoing.put(b"next", MIB)
    assert [len(packed) for _, packed in outgoing.oldest(10)] == [100]


def test_a_full_file_takes_nothing_until_there_is_room_and_shrinks(outgoing, file):
    limit = 4 * MIB
    for _ in range(40):
        outgoing.put(bytes(100_000), limit)
    with pytest.raises(Full):
        outgoing.put(bytes(200_000), limit)
    assert 4_000_000 < _value(SPOOL_BYTES) < limit
    outgoing.close()
    assert 4_000_000 < file.stat().st_size < limit
    outgoing.remove(outgoing.oldest(limit)[-1][0])
    assert _value(SPOOL_BYTES) < 100_000
    outgoing.put(b"again", limit)
    # What the log holds goes into the file when its last connection closes.
    outgoing.close()
    assert file.stat().st_size < 100_000


def test_an_empty_file_takes_a_body_beyond_its_limit(outgoing):
    outgoing.put(bytes(2 * MIB), MIB)
    with pytest.raises(Full):
        outgoing.put(b"", MIB)


def test_only_its_user_can_read_the_file(outgoing, file):
    outgoing.put(b"a", MIB)
    for each in (file, file.with_name(f"{FILE_NAME}-wal")):
        assert stat.S_IMODE(each.stat().st_mode) == 0o600


def test_a_damaged_file_is_named_and_left_as_it_is(file):
    file.write_bytes(b"no database" * 1000)
    damaged = Outgoing(file)
    with pytest.raises(StoreUnavailable, match=str(file)):
        damaged.put(b"a", MIB)
    assert file.read_bytes() == b"no database" * 1000


_WRITER = """
import sys
from pathlib import Path
from controlplane.telemetry.outgoing import Outgoing
outgoing = Outgoing(Path(sys.argv[1]))
for number in range(1_000_000):
    outgoing.put(b"%d" % number, 1 << 30)
    print(number, flush=True)
"""


def test_what_was_taken_outlives_a_kill_at_any_moment(outgoing, file):
    writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(file)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    said = [writer.stdout.readline() for _ in range(25)]
    writer.kill()
    # It may leave half a line.
    said += [line for line in writer.stdout if line.endswith("\n")]
    writer.wait()
    kept: list[int] = []
    while batch := outgoing.oldest(MIB):
        kept += [int(packed) for _, packed in batch]
        outgoing.remove(batch[-1][0])
    assert kept == list(range(len(kept)))
    # Beside what was said to be taken, at most the one that the kill interrupted.
    assert len(said) <= len(kept) <= len(said) + 1


def test_several_bodies_are_one_request(outgoing, sender, server):
    for number in range(50):
        outgoing.put(body(f"m{number}"), MIB)
    one = sender()
    one.wake(server.base)
    emptied(one)
    assert server.names() == [f"m{number}" for number in range(50)]
    assert server.requests == 1


def test_two_processes_send_every_body_once_and_in_order(sender, server):
    first, second = sender(), sender()

    def write(process: Sender, name: str) -> None:
        for number in range(40):
            process.outgoing.put(body(name, number), MIB)
            process.wake(server.base)

    writers = [threading.Thread(target=write, args=each) for each in ((first, "a"), (second, "b"))]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    emptied(first)
    for name in ("a", "b"):
        times = [
            time_ms for series in server.taken if series.labels["__name__"] == name for time_ms, _ in series.samples
        ]
        assert times == list(range(40))


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (429, {"Retry-After": "1"}),
        (429, {"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}),
        (429, {"Retry-After": "9" * 5000}),
        (500, {}),
        (503, {"Retry-After": "1"}),
        (401, {}),
        (404, {}),
        (301, {"Location": "http://127.0.0.1:9/"}),
        # To every body: a wrong address, not a wrong body.
        (400, {}),
        (413, {}),
    ],
)
def test_what_the_server_does_not_take_now_is_sent_again(sender, server, status, headers):
    server.always(status, headers)
    one = sender()
    one.outgoing.put(body("a"), MIB)
    one.wake(server.base)
    wait_for(lambda: server.requests >= 2, 20, "another try")
    assert one.outgoing.waits()
    server.always(204)
    emptied(one)
    assert server.names() == ["a"]


def test_a_servers_wish_to_wait_is_heeded(sender, server):
    server.always(503, {"Retry-After": "1"})
    one = sender()
    one.outgoing.put(body("a"), MIB)
    begin = time.monotonic()
    one.wake(server.base)
    wait_for(lambda: server.requests >= 2, 20, "another try")
    assert time.monotonic() - begin >= 1


def _refusing(
    status: int, refused: Callable[[list[Series]], bool]
) -> Callable[[list[Series]], tuple[int, dict[str, str], bytes]]:
    return lambda series: (status, {}, b"out of order sample") if refused(series) else (204, {}, b"")


def test_a_refused_body_is_lost_alone_and_the_log_says_why(outgoing, sender, server, caplog):
    lost = _value(LOST_BODIES)
    server.answer = _refusing(400, lambda series: any(each.labels["__name__"] == "bad" for each in series))
    for name in ("a", "bad", "b"):
        outgoing.put(body(name), MIB)
    one = sender()
    one.wake(server.base)
    emptied(one)
    assert server.names() == ["a", "b"]
    assert "out of order sample" in caplog.text
    assert _value(LOST_BODIES) == lost + 1


def test_a_body_that_was_damaged_on_the_disk_is_lost_alone(outgoing, sender, server, caplog):
    for packed in (body("a"), b"\xff" * 20, body("b")):
        outgoing.put(packed, MIB)
    one = sender()
    one.wake(server.base)
    emptied(one)
    assert server.names() == ["a", "b"]
    assert "refused them for good" in caplog.text


def _value(metric: Counter | Gauge) -> float:
    """Of a metric without labels."""
    (family,) = metric.collect()
    return family.samples[0].value


def test_a_body_that_is_too_large_is_sent_in_parts(outgoing, sender, server):
    server.answer = _refusing(413, lambda series: len(series) > 2)
    outgoing.put(encode([named(f"m{number}", [(1, 1.0)]) for number in range(7)]), MIB)
    one = sender()
    one.wake(server.base)
    emptied(one)
    assert server.names() == [f"m{number}" for number in range(7)]


def test_bodies_that_wait_for_a_server_that_is_away_are_sent_when_it_comes(sender):
    one = sender()
    port = free_port()
    for number in range(3):
        one.outgoing.put(body(f"m{number}"), MIB)
    one.wake(f"http://127.0.0.1:{port}")
    with ToldServer(port) as server:
        emptied(one)
        assert server.names() == ["m0", "m1", "m2"]


@pytest.fixture
def babbler() -> Iterator[Callable[[list[bytes], float], str]]:
    """A server that says parts of what is no whole answer, one after each pause; its address."""
    listening = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()
    threads: list[threading.Thread] = []

    def serve(parts: list[bytes], pause_seconds: float) -> None:
        while not ended.is_set():
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.recv(65_536)
                for part in parts:
                    if ended.wait(pause_seconds):
                        return
                    try:
                        connection.sendall(part)
                    except OSError:
                        break

    def start(parts: list[bytes], pause_seconds: float) -> str:
        threads.append(threading.Thread(target=serve, args=(parts, pause_seconds)))
        threads[-1].start()
        return f"http://127.0.0.1:{listening.getsockname()[1]}"

    yield start
    ended.set()
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("said", [b"SSH-2.0-OpenSSH\r\n", b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal"])
def test_what_is_no_answer_leaves_the_bodies(babbler, sender, server, said, caplog):
    one = sender()
    one.outgoing.put(body("a"), MIB)
    url = babbler([said], 0)
    with pytest.raises(UpstreamAway):
        call("POST", url, b"", {})
    one.wake(url)
    wait_for(lambda: "samples wait" in caplog.text, 20, "a word in the log")
    assert one.outgoing.waits()
    one.wake(server.base)
    emptied(one)
    assert server.names() == ["a"]


@pytest.mark.parametrize("begin", [b"", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_an_answer_that_trickles_is_cut_off_in_time(babbler, monkeypatch, begin):
    monkeypatch.setenv("HEADWORKS_METRICS_UPSTREAM_SECONDS", "1")
    url = babbler([begin, *[b"x"] * 100], 0.2)
    started = time.monotonic()
    with pytest.raises(UpstreamAway):
        call("GET", url, None, {})
    assert time.monotonic() - started < 5
