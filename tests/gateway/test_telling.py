"""What becomes of a body that the control plane does not take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.decisions import DecisionLog
from gateway.telling import Sender, fitting
from wire.control_api import TargetRefused, TargetUnavailable
from wire.messages import Decision
from wire.pace import Pace
from wire.target import TargetClient


def decision(number: int, message: str = "") -> Decision:
    return Decision(f"r-{number}", 1, 1, "route", "no_route", 400, message=message)


def sizes_of(parts: Sequence[bytes]) -> int:
    return len(b"[" + b",".join(parts) + b"]")


def names(body: bytes) -> list[str]:
    return [each.request_id for each in msgspec.json.decode(body, type=list[Decision])]


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=50), st.integers(2, 2000))
def test_as_many_messages_as_fit_go_at_once_and_one_at_least(parts: list[bytes], limit_bytes: int) -> None:
    count = fitting(parts, limit_bytes)
    assert count == 1 or sizes_of(parts[:count]) <= limit_bytes
    assert count == len(parts) or sizes_of(parts[: count + 1]) > limit_bytes


class ScriptedControl:
    """A client whose calls fail as a test says, then succeed."""

    def __init__(self, *failures: Exception) -> None:
        self._failures = list(failures)
        self.bodies: list[list[str]] = []

    async def post_bytes(self, path: str, body: bytes, body_headers: Mapping[str, str]) -> bytes:
        if self._failures:
            raise self._failures.pop(0)
        self.bodies.append(names(body))
        return b"{}"

    @property
    def taken(self) -> list[str]:
        return [name for body in self.bodies for name in body]


def waiting(numbers: Sequence[int]) -> DecisionLog:
    log = DecisionLog(100, lambda kind: None)
    for number in numbers:
        log.put("refused", decision(number))
    return log


def of(control: ScriptedControl, log: DecisionLog) -> Sender:
    return Sender(cast(TargetClient, control), "/api/v1/decisions", lambda: log.take(2), Pace())


async def test_everything_is_sent_in_order() -> None:
    control = ScriptedControl()
    await of(control, waiting(range(5))).send_all()
    assert control.taken == ["r-0", "r-1", "r-2", "r-3", "r-4"]


async def test_a_control_plane_that_takes_less_at_once_is_sent_less() -> None:
    control = ScriptedControl(TargetRefused("too_large", "less", 413))
    await of(control, waiting(range(4))).send_all()
    assert control.bodies == [["r-0"], ["r-1"], ["r-2"], ["r-3"]]


async def test_what_is_too_large_alone_is_dropped() -> None:
    control = ScriptedControl(*[TargetRefused("too_large", "less", 413)] * 2)
    await of(control, waiting(range(2))).send_all()
    assert control.bodies == [["r-1"]]


@pytest.mark.parametrize("status", [400, 415, 422])
async def test_a_body_that_is_refused_for_good_is_dropped_and_the_next_one_goes(status: int) -> None:
    control = ScriptedControl(TargetRefused("invalid", "no", status))
    await of(control, waiting(range(4))).send_all()
    assert control.taken == ["r-2", "r-3"]


@pytest.mark.parametrize(
    "failure",
    [TargetUnavailable("busy"), TargetRefused("revoked", "enrol", 403), TargetRefused("http_404", "none", 404)],
)
async def test_a_body_whose_sender_is_refused_or_that_finds_nobody_is_kept(failure: Exception) -> None:
    control = ScriptedControl(failure)
    sender = of(control, waiting(range(3)))
    with pytest.raises(type(failure)):
        await sender.send_all()
    await sender.send_all()
    assert control.taken == ["r-0", "r-1", "r-2"]
