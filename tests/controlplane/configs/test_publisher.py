"""From writes to revisions: all or nothing, once, and adding up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from controlplane.configs import history, publisher
from controlplane.configs.heads import Heads
from controlplane.configs.hub import heads
from controlplane.configs.models import Fragment, Revision
from controlplane.core.errors import NotFound
from controlplane.core.models import AuditEntry
from tests.controlplane.conftest import Rest
from wire.canonical import content_hash, merge_patch

_entries = st.dictionaries(
    st.tuples(st.sampled_from(["tenants", "pools"]), st.sampled_from(["a", "b", "c"])),
    st.none() | st.fixed_dictionaries({"weight": st.integers(1, 3)}, optional={"blocked": st.booleans()}),
)


def write(entries: dict[tuple[str, str], Any]) -> None:
    for (section, key), content in entries.items():
        Fragment.objects.update_or_create(section=section, key=key, defaults={"content": content, "dirty": True})


@pytest.mark.django_db
class Histories(TestCase):
    @given(st.lists(_entries, min_size=1, max_size=8))
    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
    def test_any_history_adds_up(self, batches: list[dict[tuple[str, str], Any]]) -> None:
        """Patches lead from any revision to any later one, inverses back, and every hash is that of its content."""
        contents: dict[int, Any] = {}
        for batch in batches:
            write(batch)
            publisher.publish()
            newest = Revision.objects.order_by("-number").values_list("number", flat=True)[0]
            contents[newest] = history.content_at(newest).content
        expected = {(row.section, row.key): row.content for row in Fragment.objects.all()}
        last = contents[max(contents)]
        assert expected == {(s, k): c for s, entries in last.items() for k, c in entries.items()}
        rows = {row.number: row for row in Revision.objects.all()}
        for number, content in contents.items():
            assert content_hash(content) == rows[number].hash
            if number - 1 in contents:
                assert merge_patch(contents[number - 1], rows[number].patch) == content
                assert merge_patch(content, rows[number].inverse) == contents[number - 1]
        for before in contents:
            assert merge_patch(contents[before], history.difference(before, max(contents))) == last


def test_the_first_revision_is_there_before_any_write(db: None) -> None:
    assert publisher.waiting() is not None
    revision = publisher.publish()
    assert revision is not None
    assert (revision.number, revision.whole) == (1, {})
    assert publisher.waiting() is None
    assert publisher.publish() is None


def test_a_burst_becomes_one_revision_that_its_audit_entries_name(fleet: Rest) -> None:
    revision = publisher.publish()
    assert revision is not None
    assert Revision.objects.count() == 1
    published = AuditEntry.objects.filter(touches_config=True)
    assert published.count() > 4
    assert set(published.values_list("revision", flat=True)) == {1}
    assert not Fragment.objects.filter(dirty=True).exists()


def test_there_and_back_makes_no_revision_but_the_entries_are_published(fleet: Rest) -> None:
    publisher.publish()
    fleet.patch("/tenants/acme", {"tpm_limit": 1})
    fleet.patch("/tenants/acme", {"tpm_limit": 60_000})
    assert publisher.publish() is None
    assert Revision.objects.count() == 1
    assert not AuditEntry.objects.filter(touches_config=True, revision=None).exists()
    assert publisher.waiting() is None


def test_made_and_removed_between_revisions_leaves_no_trace(fleet: Rest) -> None:
    publisher.publish()
    fleet.post("/tenants", {"name": "brief"})
    fleet.delete("/tenants/brief")
    assert publisher.publish() is None
    assert not Fragment.objects.filter(key="brief").exists()


def test_a_failure_half_way_leaves_everything_to_be_published(fleet: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = publisher.waiting()

    def full_disk(*_: Any, **__: Any) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(publisher, "_unpublished", full_disk)
        with pytest.raises(OSError, match="no space"):
            publisher.publish()
    assert not Revision.objects.exists()
    assert publisher.waiting() == waiting
    assert publisher.publish() is not None


@pytest.mark.django_db(transaction=True)
def test_of_publishers_that_race_one_publishes_everything_once() -> None:
    write({("tenants", f"t-{i}"): {"weight": 1} for i in range(50)})
    barrier = threading.Barrier(4)
    made: list[Revision | None] = []

    def race() -> None:
        barrier.wait()
        try:
            made.append(publisher.publish())
        finally:
            connection.close()

    threads = [threading.Thread(target=race) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 4
    assert [revision.number for revision in made if revision] == [1]
    assert len(history.content_at(1).content["tenants"]) == 50


def test_every_fiftieth_is_whole_and_old_ones_are_forgotten_with_their_ground_kept(db: None) -> None:
    for weight in range(1, 121):
        write({("tenants", "a"): {"weight": weight}})
        publisher.publish()
    wholes = Revision.objects.filter(whole__isnull=False).order_by("number")
    assert list(wholes.values_list("number", flat=True)) == [1, 51, 101]
    later = timezone.now() + timedelta(days=91)
    assert history.prune(timezone.now(), keep=40, keep_days=90) == 0
    # 81 is the oldest to keep; 51 is what it stands on.
    assert history.prune(later, keep=40, keep_days=90) == 50
    assert history.content_at(81).content == {"tenants": {"a": {"weight": 81}}}
    assert history.prune(later, keep=40, keep_days=90) == 0
    with pytest.raises(NotFound, match="there are 51 to 120"):
        history.content_at(50)


def test_a_damaged_revision_is_refused_by_name(db: None, newest: Callable[[], Heads]) -> None:
    newest()
    write({("tenants", "a"): {"weight": 1}})
    publisher.publish()
    Revision.objects.filter(number=2).update(patch={"tenants": {"a": {"weight": 2}}})
    with pytest.raises(history.Damaged, match="revision 2"):
        heads.refresh()
    with pytest.raises(history.Damaged, match="revision 2"):
        history.content_at(2)


def test_heads_follow_a_database_that_was_restored(db: None, newest: Callable[[], Heads]) -> None:
    for weight in (1, 2, 3):
        write({("tenants", "a"): {"weight": weight}})
        newest()
    Revision.objects.filter(number__gt=1).delete()
    heads = newest()
    assert heads.at(3) is None
    head = heads.newest
    assert head is not None
    assert head.content == {"tenants": {"a": {"weight": 1}}}


def test_a_revision_is_not_made_from_one_that_a_restored_database_holds_another_of(
    db: None, newest: Callable[[], Heads]
) -> None:
    write({("tenants", "a"): {"weight": 1}})
    known = newest().stored()
    restored = {"tenants": {"b": {"weight": 2}}}
    Revision.objects.filter(number=1).update(whole=restored, patch=restored, hash=content_hash(restored))
    write({("tenants", "c"): {"weight": 3}})
    publisher.publish(known)
    assert history.content_at(2).content == {"tenants": {"b": {"weight": 2}, "c": {"weight": 3}}}
