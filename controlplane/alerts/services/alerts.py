"""The only writer of alerts, and of which incident each belongs to. Every call runs in the caller's transaction."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeVar

from django.db.models import Case, Count, F, Min, Value, When
from django.db.models.fields.json import KT
from django.db.models.functions import Greatest
from django.utils import timezone

from controlplane.alerts import models as rows
from controlplane.alerts.health import TITLE_CHARACTERS
from controlplane.alerts.pipeline.grouping import Route, group_of, matched_labels
from controlplane.alerts.pipeline.inhibition import sources_of
from controlplane.alerts.pipeline.timing import Change, look_at
from controlplane.alerts.services import incidents, notifying
from controlplane.alerts.services.alert_lock import lock_alerts
from controlplane.alerts.services.incidents import fingerprint
from controlplane.alerts.services.standing import inhibition_rules, routes, timing_in
from controlplane.alerts.waking import NOTIFY, wake_on_commit
from controlplane.core import fields as f
from controlplane.core.nouns import PAGE_ROWS, page_of
from wire.canonical import Document

KeyT = TypeVar("KeyT", int, str)
_NODE_CHARACTERS = 63
_FIRING, _RESOLVED = rows.IncidentState.FIRING, rows.IncidentState.RESOLVED
# Names in an `in` of one query: SQLite's own limit is some 30,000.
_KEYS_A_QUERY = 5000


@dataclass(frozen=True)
class NewAlert:
    """One thing that goes wrong. `text` says how it was found, for the time line."""

    labels: dict[str, str]
    source: Literal["event", "rule"]
    severity: str
    title: str
    annotations: dict[str, str]
    at: datetime
    text: str

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.labels)


def open_alert(
    *,
    labels: dict[str, str],
    source: Literal["event", "rule"],
    severity: str,
    title: str,
    annotations: dict[str, str],
    at: datetime,
    text: str,
    value: str = "",
) -> tuple[rows.Alert, bool]:
    """The firing alert of these labels, and whether it is new. Those of events are told at once.

    A new one joins the incident of its group, or opens it. One that fires already takes the higher severity.
    `value` is what a rule found, as Prometheus writes numbers.
    """
    said = f"{text}, value {value}" if value else text
    ((alert, new),) = open_alerts([NewAlert(labels, source, severity, title, annotations, at, said)])
    if source == "event":
        notifying.look_now([alert.incident_id], timezone.now())
    return alert, new


def open_alerts(new: Sequence[NewAlert]) -> list[tuple[rows.Alert, bool]]:
    """As `open_alert`, for many at once, in as many statements as for one. Nobody is told here (notifying.py)."""
    lock_alerts()
    firing = firing_of(one.fingerprint for one in new)
    opened, graver = dict[str, tuple[NewAlert, rows.Alert]](), list[rows.Alert]()
    answer: list[tuple[rows.Alert, bool]] = []
    for one in new:
        known = firing.get(one.fingerprint)
        if known is None:
            known = firing[one.fingerprint] = rows.Alert(
                fingerprint=one.fingerprint,
                source=one.source,
                severity=one.severity,
                title=one.title[:TITLE_CHARACTERS],
                labels=one.labels,
                annotations=one.annotations,
                started_at=one.at,
            )
            opened[one.fingerprint] = one, known
            answer.append((known, True))
            continue
        answer.append((known, False))
        if _rank(one.severity) > _rank(known.severity):
            known.severity = one.severity
            graver.append(known)
    _join(list(opened.values()), [alert for alert in graver if alert.pk])
    return answer


def _join(opened: Sequence[tuple[NewAlert, rows.Alert]], graver: Sequence[rows.Alert]) -> None:
    """Put new alerts into their incidents, and have all that this changes looked at."""
    laid_down = routes()
    groups = {alert.fingerprint: group_of(laid_down, one.labels, one.severity, one.source) for one, alert in opened}
    prints = {name: group.fingerprint for name, group in groups.items()}
    there = _held_incidents(prints.values())
    begun: dict[str, tuple[NewAlert, rows.Incident]] = {}
    for one, alert in opened:
        group, name = groups[alert.fingerprint], prints[alert.fingerprint]
        if name not in there:
            there[name] = rows.Incident(
                fingerprint=name,
                source=one.source,
                severity=one.severity,
                title=alert.title,
                labels=group.labels,
                annotations=one.annotations,
                started_at=one.at,
                node=one.labels.get("node", "")[:_NODE_CHARACTERS],
                route=group.route,
            )
            begun[name] = one, there[name]
        elif name in begun and _rank(one.severity) > _rank(there[name].severity):
            # It begins as grave as that: nothing rises.
            there[name].severity = one.severity
    rows.Incident.objects.bulk_create(incident for _, incident in begun.values())
    for _, alert in opened:
        alert.incident = there[prints[alert.fingerprint]]
    rows.Alert.objects.bulk_create(alert for _, alert in opened)
    rows.Alert.objects.bulk_update(graver, ["severity"])
    incidents.note_all([(incident, "started", one.text, one.at) for one, incident in begun.values()])
    incidents.note_alerts(_joined(opened, {incident.pk for _, incident in begun.values()}))
    held = {each.pk: each for each in there.values()}
    held |= {each.pk: each for each in _held_by_key({alert.incident_id for alert in graver} - held.keys())}
    for alert in graver:
        alert.incident = held[alert.incident_id]
    urgent = {alert.incident_id for one, alert in opened if one.source == "event"}
    _follow(list(held.values()), laid_down, urgent)


def _joined(opened: Sequence[tuple[NewAlert, rows.Alert]], begun: set[int]) -> list[incidents.Line]:
    """What the time line of each incident says of the alerts that joined it, beside the one that began it."""
    joined: defaultdict[int, list[tuple[NewAlert, rows.Alert]]] = defaultdict(list)
    for one, alert in opened:
        joined[alert.incident_id].append((one, alert))
    lines = []
    for key, found in joined.items():
        rest = found[1:] if key in begun else found
        if rest:
            one, alert = rest[0]
            lines.append((alert.incident, incidents.ALERTS, _and_more(alert.title, len(rest) - 1), one.at))
    return lines


def _held_incidents(prints: Iterable[str]) -> dict[str, rows.Incident]:
    """The firing incidents of these fingerprints, their rows held."""
    firing = rows.Incident.objects.select_for_update(no_key=True).filter(state=_FIRING)
    return {
        each.fingerprint: each for some in _parts(sorted(set(prints))) for each in firing.filter(fingerprint__in=some)
    }


def _held_by_key(keys: Iterable[int]) -> list[rows.Incident]:
    held = rows.Incident.objects.select_for_update(no_key=True).order_by("pk")
    return [each for some in _parts(sorted(keys)) for each in held.filter(pk__in=some)]


def resolve_alert(alert: rows.Alert, at: datetime, text: str) -> bool:
    """End it. False where it has ended already. It never ends before it started."""
    return bool(resolve_alerts([alert.pk], at, text))


def resolve_alerts(keys: Iterable[int], at: datetime, text: str) -> int:
    """End these; how many fired. An incident ends with its last alert, and those who were told of it are told so."""
    lock_alerts()
    firing = rows.Alert.objects.filter(state=_FIRING)
    ended = [each for some in _parts(sorted(set(keys))) for each in firing.filter(pk__in=some)]
    if not ended:
        return 0
    for some in _parts([each.pk for each in ended]):
        ends_at = Greatest(F("started_at"), at)
        rows.Alert.objects.filter(pk__in=some).update(state=_RESOLVED, resolved_at=ends_at)
    held = {each.pk: each for each in _held_by_key({each.incident_id for each in ended})}
    left = _follow(list(held.values()), routes(), set())
    _end([held[key] for key in held if key not in left], at, text)
    titles: defaultdict[int, list[str]] = defaultdict(list)
    for each in ended:
        titles[each.incident_id].append(each.title)
    said = {key: _and_more(titles[key][0], len(titles[key]) - 1) for key in left}
    incidents.note_alerts([(held[key], incidents.ALERTS_ENDED, f"{said[key]}: {text}", at) for key in left])
    if sources_of(inhibition_rules(), [matched_labels(each.labels, each.severity) for each in ended]):
        notifying.wake(timezone.now(), alerts__muted_by__has_key="inhibition", alerts__state=_FIRING)
    return len(ended)


def _end(over: Sequence[rows.Incident], at: datetime, text: str) -> None:
    """End incidents whose last alert has ended, and tell those who know of them."""
    for incident in over:
        incident.state, incident.resolved_at = _RESOLVED, max(at, incident.started_at)
    rows.Incident.objects.bulk_update(over, ["state", "resolved_at"])
    incidents.note_all([(incident, "resolved", text, incident.resolved_at or at) for incident in over])
    notifying.look_now([incident.pk for incident in over], timezone.now())


def _follow(held: Sequence[rows.Incident], laid_down: Sequence[Route], urgent: set[int]) -> set[int]:
    """Have incidents, whose rows are held, say what their alerts do, and when to look at them; answers which fire."""
    counts, heads = _state_of([each.pk for each in held])
    several_nodes = _of_several_nodes(held)
    now = timezone.now()
    for incident in held:
        head = heads.get(incident.pk)
        if head is None:
            continue
        rises = _rank(head.severity) > _rank(incident.severity)
        is_urgent = incident.pk in urgent or (rises and head.severity == rows.Severity.CRITICAL)
        if rises:
            text = f"{incident.severity} becomes {head.severity}"
            incidents.note(incident, "severity", text, now, {"severity": head.severity})
        incident.severity, incident.annotations = head.severity, head.annotations
        if incident.node and incident.pk in several_nodes:
            incident.node = ""
        incident.title = _and_more(head.title, counts[incident.pk] - 1)
        incident.notify_at = look_at(
            Change.URGENT if is_urgent else Change.NEWS,
            timing_in(laid_down, incident.route),
            incident.told_at,
            incident.notify_at,
            now,
        )
    rows.Incident.objects.bulk_update(held, ["severity", "annotations", "title", "node", "notify_at"], batch_size=500)
    # Who tells of events looks at theirs in the same transaction.
    due = [each.pk for each in held if each.notify_at is not None and each.notify_at <= now]
    if not urgent.issuperset(due):
        wake_on_commit(NOTIFY)
    return {each.pk for each in held if each.pk in heads}


def _of_several_nodes(held: Sequence[rows.Incident]) -> set[int]:
    """Those of whose alerts one at least is of another node than the incident's, or of none."""
    with_node = [each.pk for each in held if each.node]
    on = rows.Alert.objects.filter(incident__in=with_node).annotate(on=KT("labels__node"))
    others = on.exclude(on=F("incident__node"))
    return set(others.values_list("incident", flat=True).distinct())


def _state_of(keys: Sequence[int]) -> tuple[Mapping[int, int], Mapping[int, rows.Alert]]:
    """Of each incident that fires: how many of its alerts do, and the first of the gravest."""
    counts: Counter[int] = Counter()
    first: dict[int, tuple[int, int]] = {}
    for some in _parts(keys):
        firing = rows.Alert.objects.filter(incident__in=some, state=_FIRING).values_list("incident", "severity")
        for key, severity, count, least in firing.annotate(Count("pk"), Min("pk")).order_by():
            counts[key] += count
            first[key] = min(first.get(key, (1, 0)), (-_rank(severity), least))
    heads = rows.Alert.objects.in_bulk([least for _, least in first.values()])
    return counts, {key: heads[least] for key, (_, least) in first.items()}


def firing_of(prints: Iterable[str]) -> dict[str, rows.Alert]:
    """The firing alerts of these fingerprints, with their incidents."""
    firing = rows.Alert.objects.filter(state=_FIRING).select_related("incident")
    return {
        each.fingerprint: each for some in _parts(sorted(set(prints))) for each in firing.filter(fingerprint__in=some)
    }


def told_of(node: str) -> list[rows.Alert]:
    """What fires on a node by its events, the oldest first."""
    firing = rows.Alert.objects.filter(state=_FIRING, source=rows.AlertSource.EVENT, labels__node=node)
    return list(firing.order_by("pk"))


def firing_with(labels: Mapping[str, str]) -> rows.Alert | None:
    """The firing alert of these labels."""
    return firing_of([fingerprint(labels)]).get(fingerprint(labels))


def _and_more(title: str, more: int) -> str:
    said = f" and {more} more" if more else ""
    return title[: TITLE_CHARACTERS - len(said)] + said


def _rank(severity: str) -> int:
    return rows.Severity(severity).rank


def _parts(keys: Sequence[KeyT]) -> Iterable[Sequence[KeyT]]:
    return (keys[start : start + _KEYS_A_QUERY] for start in range(0, len(keys), _KEYS_A_QUERY))


def first_of(incident: rows.Incident, limit: int) -> list[rows.Alert]:
    """Those that fire first, the gravest first."""
    firing = Case(When(state=_FIRING, then=0), default=1)
    grave = Case(*(When(severity=each, then=Value(-each.rank)) for each in rows.Severity))
    return list(incident.alerts.order_by(firing, grave, "pk")[:limit])


def page(
    incident: rows.Incident, *, state: str = "", limit: int = PAGE_ROWS, after: int = 0
) -> tuple[list[rows.Alert], int | None]:
    """Its alerts in the order in which they came; `after` is the last of the page before."""
    found = incident.alerts.filter(pk__gt=after, **({"state": state} if state else {}))
    return page_of(found.order_by("pk"), limit, lambda alert: alert.pk)


def describe(alert: rows.Alert) -> Document:
    return {
        "id": alert.pk,
        "fingerprint": alert.fingerprint,
        "source": alert.source,
        "severity": alert.severity,
        "title": alert.title,
        "labels": alert.labels,
        "annotations": alert.annotations,
        "state": alert.state,
        "started_at": f.iso(alert.started_at),
        "resolved_at": f.iso(alert.resolved_at),
        "muted_by": alert.muted_by,
    }


def prune(before: datetime) -> int:
    """Forget alerts that ended before then of incidents that go on; answers how many. The others go with theirs."""
    ended = rows.Alert.objects.filter(state=_RESOLVED, resolved_at__lt=before, incident__state=_FIRING)
    return ended.delete()[1].get("alerts.Alert", 0)
