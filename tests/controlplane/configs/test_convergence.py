from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from controlplane.configs import presence
from controlplane.configs.convergence import Facts, State, judge, standing_with
from controlplane.configs.heads import Heads
from controlplane.configs.models import TargetState
from controlplane.core.models import Target
from tests.controlplane.conftest import Rest

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SILENT = timedelta(seconds=45)
_hash = st.sampled_from(["", "a", "b"])


@given(st.sampled_from(["a", "b"]), _hash, _hash, st.none() | st.integers(0, 90))
def test_every_target_has_the_one_state_that_fits(desired: str, acked: str, refused: str, silent: int | None) -> None:
    seen_at = None if silent is None else NOW - timedelta(seconds=silent)
    state = judge(Facts(desired, acked, refused, seen_at), NOW, SILENT)
    assert (state == State.LOST) == (silent is None or silent > 45)
    if state == State.APPLIED:
        assert acked == desired != refused
    if state == State.REFUSED:
        assert refused == desired
    if state == State.NEVER:
        assert not acked
    if state == State.PENDING:
        assert acked
        assert acked != desired


def test_a_revision_that_does_not_concern_a_node_leaves_it_applied(
    target_of: Any, newest: Callable[[], Heads], fleet: Rest
) -> None:
    node = target_of("node", "n-1")
    head = newest().newest
    assert head is not None
    node.post("/config/ack", {"revision": 1, "hash": head.slice("node", "n-1").hash, "applied_at": 1})
    fleet.patch("/tenants/acme", {"tpm_limit": 1})
    newest()
    (shown,) = fleet.get("/config/convergence").json()["targets"]
    assert (shown["state"], shown["acked_revision"], shown["desired_revision"]) == ("applied", 1, 2)
    fleet.post("/nodes/n-1/cordon")
    newest()
    (shown,) = fleet.get("/config/convergence").json()["targets"]
    assert shown["state"] == "pending"


def test_a_silent_target_is_lost_and_a_revoked_one_is_not_counted(
    target_of: Any, newest: Callable[[], Heads], admin: Rest
) -> None:
    target = target_of()
    newest()
    Target.objects.update(last_seen_at=NOW)
    assert admin.get("/config/convergence").json()["targets"][0]["state"] == "lost"
    admin.post(f"/targets/{target.row.pk}/revoke")
    assert admin.get("/config/convergence").json()["targets"] == []


def test_an_open_stream_is_a_sign_of_life_of_a_gateway_but_reports_are_a_nodes(
    target_of: Any, newest: Callable[[], Heads], fleet: Rest
) -> None:
    """The stream of an agent that hangs stays open."""
    gateway, node = target_of(), target_of("node", "n-1")
    newest()

    def lost() -> dict[str, bool]:
        return {shown["name"]: shown["state"] == "lost" for shown in fleet.get("/config/convergence").json()["targets"]}

    Target.objects.update(last_seen_at=NOW)
    presence.beat([gateway.row.pk, node.row.pk], timezone.now())
    assert lost() == {"gw-1": False, "n-1": True}
    node.post("/nodes/report", {"version": "1"})
    assert lost() == {"gw-1": False, "n-1": False}
    Target.objects.update(last_seen_at=NOW)
    presence.ended([gateway.row.pk, node.row.pk], timezone.now())
    assert lost() == {"gw-1": False, "n-1": True}


def test_a_gateway_that_has_pushed_is_lost_when_its_pushes_stay_away_though_its_stream_is_open(
    target_of: Any, newest: Callable[[], Heads], admin: Rest
) -> None:
    """The stream of a gateway that hangs stays open too."""
    gateway = target_of()
    newest()

    def state() -> str:
        return str(admin.get("/config/convergence").json()["targets"][0]["state"])

    Target.objects.update(last_seen_at=NOW, last_pushed_at=NOW)
    presence.beat([gateway.row.pk], timezone.now())
    assert state() == "lost"
    presence.seen([gateway.row.pk], timezone.now())
    assert state() == "never", "any call is a sign of life"


def test_convergence_costs_the_same_number_of_queries_for_any_fleet(
    target_of: Any, newest: Callable[[], Heads], admin: Rest, django_assert_max_num_queries: Any
) -> None:
    for number in range(30):
        target_of("node", f"n-{number}")
    newest()
    with django_assert_max_num_queries(6):
        assert len(admin.get("/config/convergence").json()["targets"]) == 30


def test_a_target_is_connected_until_its_heartbeats_are_missed(target_of: Any, admin: Rest) -> None:
    """A web process that was killed cannot note that its streams ended."""
    row = target_of().row
    now = timezone.now()
    for silent_seconds, connected in ((0, True), (29, True), (31, False)):
        seen_at = now - timedelta(seconds=silent_seconds)
        TargetState.objects.update_or_create(target=row, defaults={"stream_seen_at": seen_at})
        assert admin.get("/config/convergence").json()["targets"][0]["connected"] is connected, silent_seconds


@pytest.mark.parametrize(
    ("state", "acked", "refused", "revision", "stands"),
    [
        (State.PENDING, 4, None, 5, State.PENDING),
        (State.PENDING, 5, None, 5, State.APPLIED),
        (State.PENDING, 4, 6, 5, State.REFUSED),
        (State.REFUSED, 5, 6, 5, State.APPLIED),
        (State.REFUSED, 4, 4, 5, State.REFUSED),
        (State.NEVER, None, None, 5, State.NEVER),
        (State.APPLIED, 3, None, 5, State.APPLIED),
        (State.LOST, 7, None, 5, State.LOST),
        (State.PENDING, 7, None, None, State.PENDING),
    ],
)
def test_a_change_is_not_held_up_by_what_came_after_it(
    state: State, acked: int | None, refused: int | None, revision: int | None, stands: State
) -> None:
    target = {"state": state.value, "acked_revision": acked, "refused_revision": refused}
    assert standing_with(target, revision) is stands
