"""From what writes left behind to the next revision: in one transaction, so that a kill leaves all of it or nothing.

Each revision says which stage ran, and so what its targets got; one where only that changed has an empty patch.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from django.db import transaction
from django.db.models import Max, QuerySet
from django.utils import timezone

from controlplane.configs.history import Damaged, Stored, content_at, is_whole, salvaged_at
from controlplane.configs.lock import lock_configuration
from controlplane.configs.models import Fragment, Revision, Stage, StageState
from controlplane.configs.stages import overlay
from controlplane.core.models import AuditEntry
from wire.canonical import Document, content_hash, diff_patch

log = logging.getLogger(__name__)

# Noun of the audit entry that a rollback leaves; its key is the number gone back to.
ROLLBACK_NOUN = "rollback"


class Waiting(NamedTuple):
    """What waits to be published. Two that differ mean that a write came in between."""

    fragments: bool
    last_entry: int
    stage: int | None


def waiting() -> Waiting | None:
    """What waits now; None if nothing does, once a first revision exists."""
    fragments = Fragment.objects.filter(dirty=True).exists()
    last_entry = _unpublished().aggregate(last=Max("id"))["last"] or 0
    published = Revision.objects.order_by("-number").values_list("stage__id").first()
    stage = Stage.objects.filter(state=StageState.RUNNING).values_list("pk", flat=True).first()
    if fragments or last_entry or published is None or published[0] != stage:
        return Waiting(fragments, last_entry, stage)
    return None


def publish(known: Stored | None = None) -> Revision | None:
    """Publish what waits; None where that changes nothing.

    `known` is a revision that the caller holds in memory; it saves loading one where it is the newest. Of several
    processes that publish at once the first takes everything and the others find nothing. Where the newest revision is
    damaged the next one is made whole from the entries that the writes left, which every revision is made of.
    """
    with transaction.atomic():
        lock_configuration()
        last = Revision.objects.order_by("-number").only("number", "hash", "stage").first()
        mends = False
        try:
            before = _content_of(last, known)
            after = _with_dirty(before)
        except Damaged as damaged:
            if last is None:
                raise
            log.error("%s; the next one is published whole, from the entries as they are stored", damaged.detail)
            mends, before = True, salvaged_at(last.number)
            after = _anew(before)
        revision, stage = None, overlay()
        if last is None or mends or after != before or stage != last.stage:
            number = last.number + 1 if last else 1
            revision = Revision.objects.create(
                number=number,
                published_at=timezone.now(),
                patch=diff_patch(before, after),
                inverse=diff_patch(after, before),
                whole=after if mends or is_whole(number) else None,
                hash=content_hash(after),
                stage=stage,
                rollback_to=_rollback_target(),
            )
            last = revision
        # Nothing can have come in between: the lock is held, and writes hold it until they commit.
        Fragment.objects.filter(dirty=True, content__isnull=True).delete()
        Fragment.objects.filter(dirty=True).update(dirty=False)
        _unpublished().update(revision=last.number)
    return revision


def _unpublished() -> QuerySet[AuditEntry]:
    return AuditEntry.objects.filter(touches_config=True, revision=None)


def _content_of(last: Revision | None, known: Stored | None) -> Document:
    if last is None:
        return {}
    # By its hash too: a database that was restored counts its numbers anew.
    if known is not None and (known.number, known.hash) == (last.number, last.hash):
        return known.content
    return content_at(last.number).content


def _with_dirty(before: Document) -> Document:
    after = dict(before)
    for section, key, content in Fragment.objects.filter(dirty=True).values_list("section", "key", "content"):
        if content is None and key not in before.get(section, {}):
            continue  # made and removed again before anything was published
        if after.get(section) is before.get(section):
            after[section] = dict(before.get(section, {}))
        if content is None:
            after[section].pop(key, None)
        else:
            after[section][key] = content
    return after


def _anew(before: Document) -> Document:
    """All entries there are; of a section that has none any more an empty one is left, as patches leave it."""
    after: Document = {section: {} for section in before}
    stored = Fragment.objects.filter(content__isnull=False).values_list("section", "key", "content")
    for section, key, content in stored:
        after.setdefault(section, {})[key] = content
    return after


def _rollback_target() -> int | None:
    """The number gone back to, where a rollback is all that is published now."""
    entries = list(_unpublished().values_list("change_id", "noun", "key"))
    targets = [int(key) for _, noun, key in entries if noun == ROLLBACK_NOUN]
    return targets[0] if targets and len({change_id for change_id, _, _ in entries}) == 1 else None
