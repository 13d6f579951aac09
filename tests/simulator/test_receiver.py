"""The receiver of webhooks, as the process that it is."""

from __future__ import annotations

import hashlib
import hmac
import json
import stat
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simulator.receiver import SIGNATURE_TOLERANCE_SECONDS, signature_refusal
from tests.services import Process, free_port

SECRET = "whsec-of-the-test"
BODY = b'{"version": "4", "alerts": []}'


def signed(body: bytes, secret: str = SECRET, at_seconds: float | None = None) -> str:
    stamp = str(int(time.time() if at_seconds is None else at_seconds))
    return f"t={stamp},v1={hmac.new(secret.encode(), stamp.encode() + b'.' + body, hashlib.sha256).hexdigest()}"


class Running:
    def __init__(self, url: str, out: Path) -> None:
        self.url, self.out = url, out

    def post(self, path: str, body: bytes, **headers: str) -> int:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, body, named), timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def deliver(self, body: bytes = BODY, delivery: str = "one", signature: str | None = None) -> int:
        header = signed(body) if signature is None else signature
        return self.post("/webhook", body, x_headworks_signature=header, x_headworks_delivery=delivery)

    def taken(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.read_text().splitlines()]


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Running]:
    secret_file, out, port = tmp_path / "secret", tmp_path / "webhooks.jsonl", free_port()
    secret_file.write_text(SECRET + "\n")
    argv = [sys.executable, "-m", "simulator.receiver", "--port", str(port)]
    argv += ["--secret-file", str(secret_file), "--out", str(out)]
    with Process(argv, log=tmp_path / "log") as process:
        process.wait_for_http(f"http://127.0.0.1:{port}/health")
        yield Running(f"http://127.0.0.1:{port}", out)
        assert process.stop() == 0


def test_it_keeps_a_signed_delivery_as_one_line_that_only_its_user_reads(receiver: Running) -> None:
    before_ms = time.time() * 1000
    assert receiver.deliver() == 200
    (line,) = receiver.taken()
    assert before_ms - 1 <= line.pop("received_at_ms") <= time.time() * 1000
    assert line == {"delivery": "one", "refusal": "", "answered": 200, "body": {"version": "4", "alerts": []}}
    assert stat.S_IMODE(receiver.out.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("signature", "refusal"),
    [
        ("", "no signature"),
        ("v1=00", "no signature"),
        (signed(BODY, secret="another"), "another secret"),
        (signed(BODY + b" "), "another secret"),
        (signed(BODY, at_seconds=time.time() - SIGNATURE_TOLERANCE_SECONDS - 60), "before or after now"),
    ],
    # Not their texts, which hold the time: each process that runs a part of the tests must find the same ones.
    ids=["absent", "no time", "another secret", "another body", "too old"],
)
def test_it_refuses_what_is_not_signed_and_says_why(receiver: Running, signature: str, refusal: str) -> None:
    assert receiver.deliver(signature=signature) == 401
    (line,) = receiver.taken()
    assert refusal in line["refusal"]


def test_told_to_fail_it_does_so_many_times_and_then_takes_the_same_delivery(receiver: Running) -> None:
    assert receiver.post("/fail", b'{"times": 2}') == 200
    assert [receiver.deliver() for _ in range(3)] == [500, 500, 200]
    assert [line["answered"] for line in receiver.taken()] == [500, 500, 200]
    assert {line["delivery"] for line in receiver.taken()} == {"one"}


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"times": -1}', b'{"times": "2"}', b"\xff", b'{"times": 1, "more": 2}', b"[" * 100_000]
)
def test_what_it_cannot_read_is_refused_and_it_lives_on(receiver: Running, body: bytes) -> None:
    assert receiver.post("/fail", body) == 400
    assert receiver.post("/elsewhere", body) == 404
    for delivery in (b"{", b"[" * 100_000):
        assert receiver.deliver(delivery, signature=signed(delivery)) == 400
    assert receiver.deliver() == 200


def test_a_signature_holds_for_its_tolerance_and_no_longer() -> None:
    header = signed(BODY, at_seconds=10_000)
    assert signature_refusal(SECRET, header, BODY, 10_000 + SIGNATURE_TOLERANCE_SECONDS) == ""
    assert signature_refusal(SECRET, header, BODY, 10_001 + SIGNATURE_TOLERANCE_SECONDS)
    assert signature_refusal(SECRET, header, BODY, 9_999 - SIGNATURE_TOLERANCE_SECONDS)


def test_without_its_secret_it_does_not_start(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "simulator.receiver", "--port", str(free_port())]
    argv += ["--secret-file", str(tmp_path / "none"), "--out", str(tmp_path / "out")]
    with Process(argv, log=tmp_path / "log") as process:
        assert process.wait() == 1
        assert "cannot receive webhooks" in process.log_tail()
