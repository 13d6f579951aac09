"""Cancelled acts that may run all the same: what their agents have told, and by which revision they went."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.configs.models import Revision
from controlplane.configs.publisher import publish
from controlplane.fleet.models import Act, Node
from controlplane.fleet.services import take_report
from controlplane.rollouts import runner
from controlplane.rollouts.ending import Withdrawal, ending_acts, may_run
from tests.controlplane.configs.staging import acknowledge
from tests.controlplane.conftest import Rest
from tests.controlplane.rollouts.conftest import do_acts, report
from tests.controlplane.rollouts.driving import RESTART, asked_to_restart, begun, held_out
from tests.controlplane.rollouts.world import START
from wire.messages import ActReport, NodeReport

SILENT_AFTER = timedelta(seconds=45)
CANCELLED_AT = START


def at(seconds: float) -> datetime:
    return CANCELLED_AT + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("asked_in", "gone_in", "reported_at", "reported_revision", "runs"),
    [
        (7, 9, at(1), 9, False),
        (7, 9, at(1), 10, False),
        # It has the act, and has not heard that it was cancelled, however often it reports.
        (7, 9, at(1), 7, True),
        (7, 9, at(3600), 8, True),
        # What is not published nobody has heard of.
        (7, None, at(3600), 7, True),
        (7, None, at(3600), 9, True),
        # It has not heard of the act; the revision that asks for it may be on its way.
        (7, 9, at(1), 6, True),
        (7, 9, at(45), 0, True),
        (7, 9, at(46), 6, False),
        # No revision ever asked for it.
        (9, 9, at(1), 8, False),
        (9, 9, at(-1), 8, False),
        # An agent that tells no revision.
        (7, 9, at(-1), None, True),
        (7, 9, at(0), None, True),
        (7, 9, at(1), None, False),
        (7, None, at(1), None, False),
        (7, 9, None, None, False),
    ],
)
def test_an_act_may_run_until_its_agent_has_told_of_it_knowing_that_it_was_cancelled(
    asked_in: int, gone_in: int | None, reported_at: datetime | None, reported_revision: int | None, runs: bool
) -> None:
    act = Withdrawal(CANCELLED_AT, asked_in, gone_in, reported_at, reported_revision)
    assert may_run(act, SILENT_AFTER) is runs


def newest_revision() -> int:
    publish()
    return Revision.objects.latest("number").number


@pytest.fixture
def cancelled(fleet: Rest, gateway: Any, newest: Any) -> tuple[int, int]:
    """Its agent was asked to restart old-1, and is so no more: the revisions that say so."""
    path = asked_to_restart(fleet, gateway, newest)
    asked_in = newest_revision()
    fleet.post(f"{path}/return")
    return asked_in, newest_revision()


def told(revision: int, *acts: ActReport) -> None:
    """The node's agent reports, by the revision that it goes by."""
    assert take_report("n-old", NodeReport("1", acts=list(acts), revision=revision), timezone.now()).acts == []
    report()


def test_an_agent_that_was_cut_off_while_it_was_cancelled_has_to_hear_of_that_before_its_word_counts(
    cancelled: tuple[int, int],
) -> None:
    asked_in, gone_in = cancelled
    for _ in range(2):
        told(asked_in)
        runner.look_at_all()
        assert list(held_out()) == ["old-1"]
    told(gone_in)
    runner.look_at_all()
    assert held_out() == {}


def test_an_older_report_that_comes_late_takes_nothing_back(cancelled: tuple[int, int]) -> None:
    asked_in, gone_in = cancelled
    running = ActReport(Act.objects.get(action="restart").act_id, "running", 1)
    told(gone_in, running)
    told(asked_in)
    runner.look_at_all()
    assert (Act.objects.get(action="restart").state, list(held_out())) == ("running", ["old-1"])


def test_what_is_not_published_yet_no_agent_has_heard_of(fleet: Rest, gateway: Any, newest: Any) -> None:
    path = asked_to_restart(fleet, gateway, newest)
    asked_in = newest_revision()
    fleet.post(f"{path}/return")
    told(asked_in)
    runner.look_at_all()
    assert list(held_out()) == ["old-1"]
    told(newest_revision())
    runner.look_at_all()
    assert held_out() == {}


def test_what_was_cancelled_before_it_was_published_was_asked_of_nobody(fleet: Rest, gateway: Any, newest: Any) -> None:
    path = begun(fleet, RESTART)
    runner.look_at_all()
    acknowledge(gateway, newest())
    runner.look_at_all()
    assert do_acts() == ["old-1 drain"]
    before = newest_revision()
    runner.look_at_all()
    assert Act.objects.get(state="waiting").action == "restart"
    fleet.post(f"{path}/return")
    told(before)
    newest_revision()
    runner.look_at_all()
    assert held_out() == {}


def test_an_agent_whose_slice_is_again_as_it_was_is_waited_for_only_as_long_as_one_that_is_silent(
    cancelled: tuple[int, int],
) -> None:
    asked_in, _ = cancelled
    told(asked_in - 1)
    assert ending_acts(["old-1"], timezone.now()) == {"old-1": "restart"}
    Act.objects.filter(action="restart").update(state_at=timezone.now() - timedelta(hours=1))
    told(asked_in - 1)
    assert ending_acts(["old-1"], timezone.now()) == {}


def test_what_can_long_not_be_begun_any_more_is_not_asked_about(cancelled: tuple[int, int]) -> None:
    asked_in, _ = cancelled
    told(asked_in)
    assert ending_acts(["old-1"], timezone.now()) == {"old-1": "restart"}
    assert ending_acts(["old-1"], timezone.now() + timedelta(days=8)) == {}


def test_an_agent_that_tells_no_revision_is_believed_when_it_tells_later(cancelled: tuple[int, int]) -> None:
    told(cancelled[0])
    assert take_report("n-old", NodeReport("1"), timezone.now()).acts == []
    assert Node.objects.get(name="n-old").reported_revision is None
    runner.look_at_all()
    assert held_out() == {}
