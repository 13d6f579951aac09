"""What happened in the time of the charts, as marks that each of them bears: read once for all, told in a language."""

from __future__ import annotations

from collections.abc import Mapping, Set
from datetime import UTC, datetime
from typing import Any

import msgspec
from django.http import HttpRequest
from django.utils import translation
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from controlplane.web.curl import curl
from controlplane.web.labels import actor_label, noun_label
from controlplane.web.shown import marks
from controlplane.web.shown.marks import CORDON, INCIDENT, REVISION, ROLLOUT, Mark, Marks
from controlplane.web.shown.rollouts import step_label
from controlplane.web.shown.spoken import spoken
from dashboards.asked import Asked
from dashboards.readings import now_ms
from dashboards.shared import Shared

# Whoever looks within one of these looks at the same marks.
STEP_MS = 5_000
# So far back a stream looks for new ones: an incident begins where its rule says that it did, not where it was written.
LATE_MS = 600_000
_KEPT_MARKS = 16

# Kind, its shape beside every word of it, and how the switch calls it.
KINDS: tuple[tuple[str, str, Promise], ...] = (
    (REVISION, "◆", gettext_lazy("Revisions")),
    (CORDON, "■", gettext_lazy("Cordons")),
    (INCIDENT, "▲", gettext_lazy("Incidents")),
    (ROLLOUT, "●", gettext_lazy("Rollouts")),
)
# By kind and state: what stands at the top of a line. An end is hollow, a failure a cross.
_HEADS: Mapping[tuple[str, str], tuple[str, Promise]] = {
    (REVISION, "published"): ("◆", gettext_lazy("rev. %(name)s")),
    (REVISION, "rolled_back"): ("◇", gettext_lazy("rollback")),
    (CORDON, "cordoned"): ("■", gettext_lazy("cordon")),
    (CORDON, "uncordoned"): ("□", gettext_lazy("uncordon")),
    (INCIDENT, "began"): ("▲", gettext_lazy("incident")),
    (INCIDENT, "resolved"): ("△", gettext_lazy("resolved")),
    (ROLLOUT, "begun"): ("●", gettext_lazy("step %(index)s")),
    (ROLLOUT, "failed"): ("✕", gettext_lazy("failed")),
}
_SAYS: Mapping[tuple[str, str], Promise] = {
    (REVISION, "published"): gettext_lazy("Revision %(name)s"),
    (REVISION, "rolled_back"): gettext_lazy("Revision %(name)s, a rollback"),
    (CORDON, "cordoned"): gettext_lazy("%(name)s cordoned"),
    (CORDON, "uncordoned"): gettext_lazy("%(name)s uncordoned"),
    (INCIDENT, "began"): gettext_lazy("Incident: %(name)s"),
    (INCIDENT, "resolved"): gettext_lazy("Resolved: %(name)s"),
    (ROLLOUT, "begun"): gettext_lazy("Rollout of %(name)s, step %(index)s: %(step)s"),
    (ROLLOUT, "failed"): gettext_lazy("Rollout of %(name)s, step %(index)s failed: %(step)s"),
}

_shared: Shared[Marks] = Shared(_KEPT_MARKS)


def between(first_ms: int, last_ms: int, now_ms: int) -> Marks:
    """The marks of a time (Unix ms), as the database has them in these seconds."""
    first_ms, last_ms = first_ms // STEP_MS * STEP_MS, -(-last_ms // STEP_MS) * STEP_MS
    return _shared.get((first_ms, last_ms, now_ms // STEP_MS), lambda: marks.read(first_ms, last_ms))


def told(mark: Mark) -> dict[str, Any]:
    """A mark in the reader's language, for the page's script."""
    shape, head = _HEADS[mark.kind, mark.state]
    step = step_label(mark.about.get("step", ""))
    name = spoken(mark.name) if mark.kind == INCIDENT else mark.name
    words = {"name": name, "index": mark.about.get("index"), "step": step}
    return {
        "id": mark.id,
        "at": mark.at_ms,
        "kind": mark.kind,
        "shape": shape,
        "head": str(head) % words,
        "says": str(_SAYS[mark.kind, mark.state]) % words + _changed(mark),
        "who": actor_label(mark.actor_kind, mark.actor) if mark.actor else "",
        # That of a step which failed is the program's, others are people's.
        "why": spoken(mark.why) if mark.state == "failed" else mark.why,
        "page": mark.page,
    }


def _changed(mark: Mark) -> str:
    """Of a revision, what was changed in it."""
    if mark.kind != REVISION or not mark.about["noun"]:
        return ""
    more = mark.about["changes"] - 1
    others = " " + ngettext("and %(count)d more", "and %(count)d more", more) % {"count": more} if more > 0 else ""
    return f": {noun_label(mark.about['noun'])} {mark.about['key']}{others}"


def cut_text(cut: Set[str]) -> str:
    """What is said where there were more marks than a chart can bear."""
    names = [str(label) for kind, _shape, label in KINDS if kind in cut]
    if not names:
        return ""
    return _("Of %(kinds)s, the newest %(number)d are marked.") % {
        "kinds": ", ".join(names),
        "number": marks.ROWS_MAX,
    }


def shown(asked: Asked, request: HttpRequest) -> dict[str, Any]:
    """What the page shows of the time that was asked for; of one that goes on, up to now."""
    now, first_ms = now_ms(), asked.span.first_ms(asked.newest_ms)
    last_ms = now + STEP_MS if asked.end_ms is None else asked.newest_ms
    marked = between(first_ms, last_ms, now)
    only = dict(asked.only)
    moments = {"from": _iso(first_ms), "to": _iso(last_ms)}
    return {
        "found": [told(mark) for mark in marked.found if mark.within(only)],
        "cut": cut_text(marked.cut),
        "curl": curl(request, "GET", "/marks", query={**moments, **only}),
    }


def _iso(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


class News:
    """The marks that one stream has not told yet."""

    def __init__(self, only: Mapping[str, str], language: str) -> None:
        self._only, self._language = only, language
        self._told: set[str] = set()
        self._looked = 0

    def due(self, now_ms: int) -> bool:
        """Whether the marks were not looked at in these seconds."""
        return now_ms // STEP_MS > self._looked

    def event(self, since_ms: int, now_ms: int) -> bytes:
        """The marks after `since_ms`, or since lately, that were not told; empty where there are none."""
        self._looked = now_ms // STEP_MS
        first_ms = min(since_ms, now_ms - LATE_MS)
        found = between(first_ms, now_ms + STEP_MS, now_ms).found
        new = [mark for mark in found if mark.id not in self._told and mark.within(self._only)]
        if not new:
            return b""
        self._told.update(mark.id for mark in new)
        with translation.override(self._language):
            return b"event: marks\ndata: %b\n\n" % msgspec.json.encode([told(mark) for mark in new])
