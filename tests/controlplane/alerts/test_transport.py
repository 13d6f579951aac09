from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from controlplane.alerts.delivery_plan import Outcome, Reason, judge
from controlplane.alerts.receivers.contract import Answer as Said
from controlplane.alerts.receivers.contract import Request
from controlplane.alerts.transport import ANSWER_BYTES, send
from tests.controlplane.alerts.receiving import ALLOWED, CLOSE, Answer, on_call
from tests.services import free_port

BODY = b'{"a": 1}'


@pytest.fixture(autouse=True)
def _loopback_is_allowed(monkeypatch):
    monkeypatch.setenv("HEADWORKS_WEBHOOK_ALLOWED_NETWORKS", ALLOWED)
    monkeypatch.setenv("HEADWORKS_WEBHOOK_TIMEOUT_SECONDS", "1")


def judged(said: Said) -> Outcome:
    return judge(said.status, said.retry_after, datetime.now(UTC))


def post(*urls: str) -> Outcome:
    """Send to these URLs at once."""
    return send([Request(url, BODY, {"X-Headworks-Delivery": "d-1"}) for url in urls], judged)


@contextmanager
def dripping() -> Iterator[int]:
    """A port whose server answers one byte every tenth of a second, without end."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection:
                try:
                    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
                    while True:
                        connection.sendall(b"x")
                        time.sleep(0.1)  # the pace of this receiver
                except OSError:
                    return

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(10)
        assert not thread.is_alive()


def test_a_message_goes_with_its_headers():
    with on_call() as receiver:
        assert post(receiver.url).reason is Reason.TAKEN
    assert [(got.delivery, got.body) for got in receiver.got] == [("d-1", BODY)]


def test_a_redirect_is_a_failed_attempt_that_says_so_and_is_not_followed():
    with on_call() as elsewhere, on_call(Answer(302, (("Location", elsewhere.url),))) as receiver:
        outcome = post(receiver.url)
    assert outcome.reason is Reason.REDIRECTED
    assert "redirects are not followed" in outcome.text
    assert not elsewhere.got


def test_a_receiver_that_asks_for_a_pause_is_heard():
    with on_call(Answer(429, (("Retry-After", "17"),))) as receiver:
        outcome = post(receiver.url)
    assert outcome.reason is Reason.BUSY
    assert outcome.retry_after is not None
    assert outcome.retry_after.total_seconds() == 17


@pytest.mark.parametrize("status", [400, 500])
def test_a_refusal_is_named_with_its_status(status):
    with on_call(Answer(status)) as receiver:
        assert str(status) in post(receiver.url).error


def test_a_receiver_that_closes_or_is_not_there_is_unreachable():
    with on_call(CLOSE) as receiver:
        assert post(receiver.url).reason is Reason.UNREACHABLE
    assert post(f"http://127.0.0.1:{free_port()}/").reason is Reason.UNREACHABLE
    assert post("http://no-such-host.invalid/").reason in (Reason.UNREACHABLE, Reason.TIMED_OUT)


def test_an_answer_without_end_is_cut_off_in_time():
    with dripping() as port:
        began = time.monotonic()
        assert post(f"http://127.0.0.1:{port}/").reason is Reason.TIMED_OUT
        assert time.monotonic() - began < 5


def test_a_name_that_is_looked_up_for_too_long_is_given_up_in_time(monkeypatch):
    answered = threading.Event()
    looking_up = socket.getaddrinfo

    def hang(*about: Any, **more: Any) -> Any:
        answered.wait(20)
        return looking_up("127.0.0.1", *about[1:], **more)

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    began = time.monotonic()
    try:
        assert post("http://receiver.example/").reason is Reason.TIMED_OUT
        assert time.monotonic() - began < 5
    finally:
        answered.set()


def test_plain_http_on_a_tls_url_is_named():
    with on_call() as receiver:
        assert post(receiver.url.replace("http:", "https:")).reason in (Reason.TLS, Reason.UNREACHABLE)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"])
def test_an_address_that_may_not_be_reached_is_not_even_connected_to(monkeypatch, host):
    """`localhost` is any name that resolves to such an address, whatever it resolved to when it was set."""
    monkeypatch.setenv("HEADWORKS_WEBHOOK_ALLOWED_NETWORKS", "")
    with on_call() as receiver:
        outcome = post(receiver.url.replace("127.0.0.1", host))
    assert outcome.reason is Reason.ADDRESS_REFUSED
    assert "HEADWORKS_WEBHOOK_ALLOWED_NETWORKS" in outcome.text
    assert not receiver.got


def test_a_name_that_leads_elsewhere_at_the_second_look_is_judged_by_what_is_connected_to(monkeypatch):
    """Rebinding: the first look-up, when the URL was set, said something public."""
    looked_up = iter(["93.184.216.34", "169.254.169.254"])

    def rebound(host: str, port: int, *about: Any, **more: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(looked_up), port))]

    monkeypatch.setattr(socket, "getaddrinfo", rebound)
    assert socket.getaddrinfo("rebound.example", 80)[0][4][0] == "93.184.216.34"
    assert post("http://rebound.example/").reason is Reason.ADDRESS_REFUSED


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "fd00:ec2::254", "0.0.0.0"]
)
def test_a_name_of_a_forbidden_address_is_refused_whatever_is_allowed(monkeypatch, address):
    monkeypatch.setenv("HEADWORKS_WEBHOOK_ALLOWED_NETWORKS", "0.0.0.0/0,::/0")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    place = (address, 80, 0, 0) if ":" in address else (address, 80)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(family, socket.SOCK_STREAM, 6, "", place)])
    assert post("http://metadata.example/").reason is Reason.ADDRESS_REFUSED


def test_of_an_answer_of_ten_megabytes_the_beginning_is_read():
    with on_call(Answer(500, body=b"x" * 10_000_000)) as receiver:
        began = time.monotonic()
        outcome = post(receiver.url)
    assert (outcome.reason, outcome.said) == (Reason.SERVER_ERROR, "x" * ANSWER_BYTES)
    assert time.monotonic() - began < 5


def test_an_answer_that_breaks_off_counts_by_its_status():
    with on_call(Answer(200, body=b"half", promised=1000), Answer(500, body=b"half", promised=1000)) as receiver:
        assert post(receiver.url).reason is Reason.TAKEN
        assert post(receiver.url).reason is Reason.SERVER_ERROR


def test_of_several_one_that_takes_it_is_enough_and_the_others_are_told_of():
    with on_call() as one, on_call(Answer(503)) as other:
        outcome = post(other.url, one.url)
        assert post(f"http://127.0.0.1:{free_port()}/").reason is Reason.UNREACHABLE
    assert outcome.reason is Reason.TAKEN
    assert "1 of 2 took it, and busy: answered 503" in outcome.text
    assert len(one.got) == len(other.got) == 1
