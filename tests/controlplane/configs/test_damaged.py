"""The newest revision does not add up: named while that is so, and another one published in its place."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from controlplane.configs import history, publisher
from controlplane.configs.heads import Heads
from controlplane.configs.hub import Hub, heads
from controlplane.configs.models import Fragment, Revision
from controlplane.configs.waiting import wait_applied
from controlplane.core.models import AuditEntry
from tests.controlplane.conftest import Rest


@pytest.fixture
def hub(fleet: Rest, newest: Callable[[], Heads]) -> Hub:
    """Two revisions, the second one read."""
    newest()
    fleet.patch("/tenants/acme", {"tpm_limit": 1})
    newest()
    return Hub()


def wrong_hash() -> None:
    Revision.objects.filter(number=2).update(hash="0" * 64)


def other_patch() -> None:
    Revision.objects.filter(number=2).update(patch={"tenants": {"acme": {"tpm_limit": 2}}})
    forget()


def no_patch() -> None:
    Revision.objects.filter(number=2).update(patch=[1])
    forget()


def no_section() -> None:
    Revision.objects.filter(number=2).update(patch={"engines": None, "tenants": 7})
    forget()


def whole_is_gone() -> None:
    Revision.objects.filter(number=1).delete()
    forget()


def forget() -> None:
    """As a process that has just started."""
    heads._stored = heads.newest = None


DAMAGES = [wrong_hash, other_patch, no_patch, no_section, whole_is_gone]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("writes", [True, False])
def test_the_next_revision_is_whole_and_what_the_writes_left(
    hub: Hub, fleet: Rest, caplog: pytest.LogCaptureFixture, damage: Callable[[], None], writes: bool
) -> None:
    damage()
    if writes:
        assert fleet.patch("/tenants/acme", {"tpm_limit": 5}).status_code == 200
    with caplog.at_level(logging.ERROR):
        hub._take_newest()
    assert "revision 2" in caplog.text
    assert hub.encoded is not None
    assert hub.encoded.head.number == 3
    content = hub.encoded.head.content
    assert content["tenants"]["acme"]["tpm_limit"] == (5 if writes else 1)
    assert set(content) >= {"tenants", "models", "pools", "engines", "routes", "nodes"}
    assert history.content_at(3).content == content
    assert publisher.waiting() is None
    # And it goes on as ever, by patches.
    fleet.patch("/tenants/acme", {"tpm_limit": 9})
    assert publisher.publish(heads.stored()) is not None
    hub._take_newest()
    assert hub.encoded.head.number == 4
    assert history.content_at(4).content["tenants"]["acme"]["tpm_limit"] == 9
    assert Revision.objects.get(number=4).whole is None


def test_once_mended_it_is_left_alone(hub: Hub) -> None:
    wrong_hash()
    hub._take_newest()
    hub._take_newest()
    assert publisher.publish() is None
    assert Revision.objects.count() == 3


def test_what_differs_from_the_damaged_one_is_the_patch(hub: Hub) -> None:
    other_patch()
    hub._take_newest()
    row = Revision.objects.get(number=3)
    assert row.patch == {"tenants": {"acme": {"tpm_limit": 1}}}
    assert row.inverse == {"tenants": {"acme": {"tpm_limit": 2}}}


def test_until_then_it_is_named(hub: Hub, fleet: Rest, client: Client, target_of: Any) -> None:
    wrong_hash()
    with pytest.raises(history.Damaged):
        heads.refresh()
    entries = AuditEntry.objects.count()
    for answer in (
        fleet.get("/config/convergence"),
        fleet.patch("/tenants/acme", {"tpm_limit": 5}),
        target_of().get("/config/snapshot"),
    ):
        assert answer.status_code == 503, answer.content
        assert answer.json()["code"] == "revision_damaged"
        assert "revision 2" in answer.json()["detail"]
        assert answer["Retry-After"] == "1"
    assert AuditEntry.objects.count() == entries
    assert not Fragment.objects.filter(dirty=True).exists()
    ready = client.get("/readyz")
    assert ready.status_code == 503
    assert any("revision 2" in lack for lack in json.loads(ready.content)["missing"])
    # What no target is told of goes on.
    assert fleet.post("/targets/join-tokens", {"kind": "gateway"}).status_code == 201
    hub._take_newest()
    assert fleet.get("/config/convergence").status_code == 200
    assert fleet.patch("/tenants/acme", {"tpm_limit": 5}).status_code == 200


def test_who_waits_for_a_write_is_not_told_that_it_failed(
    hub: Hub, fleet: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.configs.waiting.hub.start", lambda: None)
    wrong_hash()
    change_id = AuditEntry.objects.filter(revision=2).values_list("change_id", flat=True)[0]
    answer = wait_applied(change_id, 0.05)
    assert (answer["revision"], answer["targets"]) == (2, 0)
    assert answer["waited_ms"] >= 50
