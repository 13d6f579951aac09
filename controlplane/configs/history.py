"""Revisions as rows: what the configuration was at a number, what changed between two, which may be forgotten."""

from __future__ import annotations

from datetime import datetime, timedelta
from http import HTTPStatus
from typing import NamedTuple

from controlplane.configs.models import Revision
from controlplane.core.errors import NotFound, Refused
from wire.canonical import Document, content_hash, diff_patch, merge_patch

# A whole is stored at 1, 51, 101 …: any content is at most this many patches away.
WHOLE_EVERY = 50


class Damaged(Refused):
    """Stored revisions do not add up to the hash that was published. The detail names the revision."""

    status, code = HTTPStatus.SERVICE_UNAVAILABLE, "revision_damaged"


class Stored(NamedTuple):
    """One revision with its content and the content's hash. `stage`: what some targets get (see stages.overlay)."""

    number: int
    content: Document
    published_at: datetime
    hash: str
    stage: Document | None = None


def is_whole(number: int) -> bool:
    return number % WHOLE_EVERY == 1


def get(number: int) -> Revision:
    """Raises NotFound, naming the revisions that there are."""
    revision = Revision.objects.filter(number=number).first()
    if revision is None:
        ends = Revision.objects.order_by("number").values_list("number", flat=True)
        first, last = ends.first(), ends.last()
        there = f"there are {first} to {last}" if first else "nothing has been published yet"
        raise NotFound(f"revision {number} does not exist; {there}", code="unknown_revision")
    return revision


def content_at(number: int) -> Stored:
    """The whole configuration at a revision, its hash verified. Raises NotFound or Damaged."""
    revision = get(number)
    content = _sum_at(number)
    if content_hash(content) != revision.hash:
        raise Damaged(f"revision {number} does not have the hash that it was published with")
    return Stored(number, content, revision.published_at, revision.hash, revision.stage)


def salvaged_at(number: int) -> Document:
    """What the rows of a damaged revision add up to, right or wrong; nothing where they add up to no configuration."""
    try:
        content = _sum_at(number)
    except Damaged:
        return {}
    sound = isinstance(content, dict) and all(isinstance(entries, dict) for entries in content.values())
    return content if sound else {}


def _sum_at(number: int) -> Document:
    """The last whole with the patches after it. Raises Damaged where there is none."""
    base = ground_of(number)
    content = base.content
    patches = Revision.objects.filter(number__gt=base.number, number__lte=number).order_by("number")
    for patch in patches.values_list("patch", flat=True):
        content = merge_patch(content, patch)
    return content


def ground_of(number: int) -> Stored:
    """The newest revision up to `number` that is stored whole. Raises Damaged."""
    base = Revision.objects.filter(number__lte=number, whole__isnull=False).order_by("-number").first()
    if base is None or not isinstance(base.whole, dict):
        raise Damaged(f"no whole configuration is stored at or before revision {number}")
    return Stored(base.number, base.whole, base.published_at, base.hash, base.stage)


def difference(before: int, after: int) -> Document:
    """The RFC 7396 patch from one revision to another, either way round. Raises NotFound."""
    return both_ways(before, after)[0]


def both_ways(before: int, after: int) -> tuple[Document, Document]:
    """The patch from one revision to another, and the one that leads back. Raises NotFound."""
    old, new = content_at(before).content, content_at(after).content
    return diff_patch(old, new), diff_patch(new, old)


def prune(now: datetime, *, keep: int, keep_days: int) -> int:
    """Forget revisions beyond the newest `keep` that are older than `keep_days`; answers how many.

    The last whole before the oldest one that is kept stays, with the patches between, as its ground.
    """
    newest = Revision.objects.order_by("-number").values_list("number", flat=True)
    if len(oldest_kept := list(newest[keep - 1 : keep])) == 0:
        return 0
    young = Revision.objects.filter(published_at__gte=now - timedelta(days=keep_days)).order_by("number").first()
    bound = min(oldest_kept[0], young.number) if young else oldest_kept[0]
    ground = Revision.objects.filter(number__lte=bound, whole__isnull=False).order_by("-number").first()
    if ground is None:
        return 0
    deleted, _ = Revision.objects.filter(number__lt=ground.number).delete()
    return deleted
