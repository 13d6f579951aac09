"""What targets say they run: judged, stored together, never half."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from django.db import connection
from django.utils import timezone

from controlplane.configs import acks
from controlplane.configs.heads import Heads
from controlplane.configs.models import TargetState
from controlplane.core.models import Target
from tests.controlplane.conftest import Rest
from tests.controlplane.core.racing import at_once
from tests.services import wait_for
from wire.messages import Ack

AT = 1_790_000_000_000


def ack(rest: Any, heads: Heads, **changes: Any) -> Any:
    head = heads.newest
    assert head is not None
    hash = head.slice(rest.row.kind, rest.row.name).hash
    return rest.post("/config/ack", {"revision": head.number, "hash": hash, "applied_at": AT, **changes})


def nack(rest: Any, revision: int) -> Any:
    error = [{"path": "/pools/short/model", "rule": "reference", "message": "model 'x' does not exist"}]
    return rest.post("/config/ack", {"revision": revision, "error": error})


def test_an_ack_is_stored_before_it_is_answered(target_of: Any, newest: Callable[[], Heads]) -> None:
    target = target_of()
    assert ack(target, newest()).json() == {"taken": True}
    state = TargetState.objects.get(target=target.row)
    assert (state.revision, state.error, state.acked_at is not None) == (1, None, True)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"revision": 7, "hash": "0" * 64, "applied_at": AT}, 404, "unknown_revision"),
        ({"revision": 0, "hash": "0" * 64, "applied_at": AT}, 404, "unknown_revision"),
        ({"revision": 1, "hash": "0" * 64, "applied_at": AT}, 409, "wrong_hash"),
        ({"revision": 1}, 422, "invalid"),
        ({"revision": 1, "hash": "0" * 64, "applied_at": AT, "error": []}, 422, "invalid"),
        ({"revision": "1", "hash": "0" * 64, "applied_at": AT}, 422, "invalid"),
        (b"{not json", 400, "malformed"),
        (b"[" * 100_000, 400, "malformed"),
        (b"\xff\xfe", 400, "malformed"),
    ],
)
def test_a_bad_ack_is_refused_by_name_and_nothing_is_stored(
    target_of: Any, newest: Callable[[], Heads], body: Any, status: int, code: str
) -> None:
    newest()
    answer = target_of().post("/config/ack", body)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.content
    assert not TargetState.objects.exists()


def test_the_wrong_hash_is_told_the_right_one(target_of: Any, newest: Callable[[], Heads]) -> None:
    heads = newest()
    answer = ack(target_of(), heads, hash="f" * 64)
    assert heads.newest is not None
    assert heads.newest.slice("gateway", "x").hash in answer.json()["detail"]


def test_a_nack_shows_its_reasons_until_the_target_applies(
    target_of: Any, newest: Callable[[], Heads], admin: Rest
) -> None:
    target = target_of()
    heads = newest()
    ack(target, heads)
    admin.post("/tenants", {"name": "acme"})
    newest()
    assert nack(target, 2).status_code == 200
    (shown,) = admin.get("/config/convergence").json()["targets"]
    assert (shown["state"], shown["acked_revision"], shown["refused_revision"]) == ("refused", 1, 2)
    assert shown["problems"][0]["path"] == "/pools/short/model"
    assert ack(target, heads).status_code == 200
    (shown,) = admin.get("/config/convergence").json()["targets"]
    assert (shown["state"], shown["problems"], shown["refused_revision"]) == ("applied", [], None)


def test_reasons_are_kept_as_far_as_any_database_can_hold_them(target_of: Any, newest: Callable[[], Heads]) -> None:
    target = target_of()
    newest()
    error = [{"path": "/a\x00", "rule": "r" * 9000, "message": "bad\x00" + "x" * 9000}]
    assert target.post("/config/ack", {"revision": 1, "error": error}).status_code == 200
    kept = (TargetState.objects.get().error or [{}])[0]
    assert kept["path"] == "/a\ufffd"
    assert kept["message"].startswith("bad\ufffdxxx")
    assert {len(kept["rule"]), len(kept["message"])} == {500}


def test_an_ack_of_a_process_that_lost_its_name_meanwhile_is_left_out(
    target_of: Any, newest: Callable[[], Heads]
) -> None:
    newest()
    lost, other = target_of().row, target_of(name="gw-2").row
    error = [{"path": "/", "rule": "test", "message": "no"}]
    nack = msgspec.convert({"revision": 1, "error": error}, Ack)
    judged = [acks.judge(row, nack, timezone.now()) for row in (lost, other)]
    Target.objects.filter(pk=lost.pk).update(enrolled_at=timezone.now())
    acks.store(judged)
    assert [state.target_id for state in TargetState.objects.all()] == [other.pk]


def test_a_late_ack_does_not_take_a_newer_one_back(target_of: Any, newest: Callable[[], Heads], admin: Rest) -> None:
    target = target_of()
    heads = newest()
    first = heads.newest
    assert first is not None
    admin.post("/tenants", {"name": "acme"})
    ack(target, newest())
    late = {"revision": 1, "hash": first.slice("gateway", "x").hash, "applied_at": AT}
    assert target.post("/config/ack", late).status_code == 200
    assert TargetState.objects.get().revision == 2


def test_a_clock_that_is_ahead_is_taken_as_now(target_of: Any, newest: Callable[[], Heads]) -> None:
    assert ack(target_of(), newest(), applied_at=2**53 - 1).status_code == 200
    state = TargetState.objects.get()
    assert state.applied_at is not None
    assert state.acked_at is not None
    assert state.applied_at <= state.acked_at


@pytest.mark.django_db(transaction=True)
def test_acks_that_come_together_are_stored_together(
    target_of: Any, newest: Callable[[], Heads], monkeypatch: pytest.MonkeyPatch
) -> None:
    head = newest().newest
    assert head is not None
    targets = [target_of(name=f"gw-{i}").row for i in range(12)]
    sizes: list[int] = []
    stored = acks.store

    def store(batch: Any) -> None:
        sizes.append(len(batch))
        stored(batch)

    monkeypatch.setattr(acks, "store", store)
    monkeypatch.setattr(acks, "batcher", acks.Batcher(0.3))

    def one(target: Any) -> None:
        try:
            acks.take(target, Ack(1, hash=head.slice("gateway", "x").hash, applied_at=AT))
        finally:
            connection.close()

    threads = [threading.Thread(target=one, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(sizes) == len(targets)
    assert len(sizes) < len(targets)
    assert TargetState.objects.filter(revision=1).count() == len(targets)


@pytest.mark.django_db(transaction=True)
def test_a_batch_holds_more_acks_than_there_are_connections(
    target_of: Any, newest: Callable[[], Heads], monkeypatch: pytest.MonkeyPatch
) -> None:
    head = newest().newest
    assert head is not None
    targets = [target_of(name=f"gw-{i}").row for i in range(40)]
    batcher = acks.Batcher(0)
    monkeypatch.setattr(acks, "batcher", batcher)
    # The first waits for all instead of a moment; nobody would come where the others wait for its connection.
    waiting = SimpleNamespace(sleep=lambda _: wait_for(lambda: len(batcher._gathering) == 40, 8, "all acks"))
    monkeypatch.setattr(acks, "time", waiting)

    def one(target: Any) -> Callable[[], None]:
        return lambda: acks.take(target, Ack(1, hash=head.slice("gateway", "x").hash, applied_at=AT))

    assert at_once(*map(one, targets)) == [None] * 40
    assert TargetState.objects.filter(revision=1).count() == 40


@pytest.mark.django_db(transaction=True)
def test_a_batch_that_cannot_be_stored_fails_for_all_who_wait(
    target_of: Any, newest: Callable[[], Heads], monkeypatch: pytest.MonkeyPatch
) -> None:
    head = newest().newest
    assert head is not None
    targets = [target_of(name=f"gw-{i}").row for i in range(4)]
    failed: list[BaseException] = []

    def store(batch: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(acks, "store", store)
    monkeypatch.setattr(acks, "batcher", acks.Batcher(0.2))

    def one(target: Any) -> None:
        try:
            acks.take(target, Ack(1, hash=head.slice("gateway", "x").hash, applied_at=AT))
        except OSError as error:
            failed.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=one, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(failed) == 4
    assert not TargetState.objects.exists()


def test_an_ack_that_is_repeated_keeps_the_first_times(
    target_of: Any, newest: Callable[[], Heads], admin: Rest
) -> None:
    target = target_of()
    heads = newest()
    ack(target, heads)
    first = TargetState.objects.get()
    assert ack(target, heads, applied_at=AT + 60_000).status_code == 200
    again = TargetState.objects.get()
    assert (again.applied_at, again.acked_at) == (first.applied_at, first.acked_at)
    admin.post("/tenants", {"name": "acme"})
    assert ack(target, newest(), applied_at=AT + 90_000).status_code == 200
    later = TargetState.objects.get()
    assert later.applied_at is not None
    assert first.applied_at is not None
    assert later.acked_at is not None
    assert first.acked_at is not None
    assert later.applied_at > first.applied_at
    assert later.acked_at > first.acked_at
