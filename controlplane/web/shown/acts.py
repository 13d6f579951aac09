"""Acts in the form that pages show: those that were asked for, and those that can be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db.models import Exists, OuterRef, Prefetch, Q
from django.utils.translation import gettext as _

from controlplane.fleet.models import Act, ActState, Engine, EngineKind, Node
from controlplane.fleet.services import ENGINES, NODES
from controlplane.web.labels import ACTIONS, action_label
from controlplane.web.listed import Listed, Wanted, listed
from controlplane.web.shown.spoken import spoken
from wire.acts import ACTIONS as REQUESTS

_BEGUN = (ActState.RUNNING, ActState.DONE, ActState.FAILED)


class Subject(NamedTuple):
    """What an act is asked of: an engine with its node, or a node."""

    node: Node
    engine: Engine | None

    @property
    def name(self) -> str:
        return self.engine.name if self.engine else self.node.name

    @property
    def field(self) -> str:
        """What REST and the pages' addresses call it."""
        return "engine" if self.engine else "node"

    @property
    def allowed(self) -> list[str]:
        """The actions that the node's own policy lets be done to it, as its agent told last."""
        allowed: list[str] = self.node.allowed_acts.get(self.engine.name if self.engine else "", [])
        return allowed


@dataclass(frozen=True)
class Offer:
    """One action; `why_not` is empty where it can be asked for."""

    action: str
    label: str
    what: str
    why_not: str


@dataclass(frozen=True)
class ActLine:
    """One act. `result` is why it was refused or failed, or what was done."""

    row: Act

    @property
    def label(self) -> str:
        return action_label(self.row.action)

    @property
    def look(self) -> str:
        """Its state, by the name in `states.LOOKS`: a target that refuses is called otherwise than what is refused."""
        return "act_refused" if self.row.state == ActState.REFUSED else self.row.state

    @property
    def subject(self) -> str:
        return self.row.engine.name if self.row.engine else self.row.node.name

    @property
    def took_seconds(self) -> float | None:
        """Of what was begun, so far; None where nothing was."""
        return self.row.took_ms / 1000 if self.row.state in _BEGUN else None

    @property
    def progress_percent(self) -> int | None:
        """How far it has come; None where it does not run, or cannot tell."""
        permille = self.row.progress_permille
        return permille // 10 if permille is not None and self.row.state == ActState.RUNNING else None

    @property
    def waits(self) -> bool:
        return self.row.state == ActState.WAITING

    @property
    def arguments(self) -> str:
        return ", ".join(f"{name}={_as_typed(value)}" for name, value in _flat(self.row.arguments))

    @property
    def result(self) -> str:
        return ": ".join(filter(None, (self.row.result_reason, spoken(self.row.detail))))


def _flat(arguments: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in arguments.items():
        if isinstance(value, dict):
            yield from _flat(value)
        else:
            yield name, value


def _as_typed(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def subject_of(*, engine: str, node: str) -> Subject | None:
    """The engine or the node of that name; None where neither is named. Raises NotFound; an engine needs a node."""
    if engine:
        row = ENGINES.get(engine)
        return Subject(row.node, row) if row.node else None
    return Subject(NODES.get(node), None) if node else None


def subjects(wanted: Wanted) -> Listed[Node]:
    """Nodes by name, those that hold what is searched for in their name or in that of an engine; with their engines."""
    engines = Engine.objects.order_by("name")
    named = engines.filter(node=OuterRef("pk"), name__icontains=wanted.text)
    nodes = Node.objects.filter(Q(name__icontains=wanted.text) | Exists(named))
    return listed(nodes.order_by("name").prefetch_related(Prefetch("engines", engines)), wanted)


def offers(subject: Subject) -> list[Offer]:
    """Every action on a subject of this kind, those that can be asked for first."""
    of_engine = subject.engine is not None
    found = [
        Offer(action, action_label(action), str(ACTIONS[action].what), _why_not(subject, action))
        for action, request in REQUESTS.items()
        if bool(request.kinds) == of_engine
    ]
    return sorted(found, key=lambda offer: bool(offer.why_not))


def _why_not(subject: Subject, action: str) -> str:
    kinds = REQUESTS[action].kinds
    if subject.engine is not None and subject.engine.kind not in kinds:
        return _("Only for %(kinds)s.") % {"kinds": ", ".join(sorted(str(EngineKind(kind).label) for kind in kinds))}
    if subject.node.reported_at is None:
        return _("Its node's agent has not reported yet.")
    if action not in subject.allowed:
        return _("The policy of node %(node)s does not allow it.") % {"node": subject.node.name}
    return ""
