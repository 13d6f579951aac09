"""Which series a writer may write: pure, on a body's encoded labels and what is known already."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from google.protobuf.message import DecodeError

from controlplane.core.models import TargetKind
from controlplane.telemetry.store.writer import Owner
from wire.problems import Problem, pointer
from wire.remote_write import Bounds, labels_of
from wire.remote_write_pb2 import Label
from wire.write_body import METRIC_NAME, Key, key_of

# The kind of an owner that is no target: a Prometheus, an Alloy, a vmagent.
WRITER = "writer"
# Of what gateways, agents and the control plane measure.
OWN_PREFIX = "headworks_"
# Of a recorded series' name; an engine's own has one.
RECORDED_COLONS = 2
# Labels that say which target a series is of.
TARGET_LABELS = tuple(kind.value for kind in TargetKind)
_TELLING_LABELS = (METRIC_NAME, *TARGET_LABELS)
# How each begins, encoded: all but the length of its value, and that.
_TELLING_BEGINNINGS = tuple(key_of({name: ""})[0][:-1] for name in _TELLING_LABELS)


class Rules(Protocol):
    """Which series a writer may write."""

    def foreign(self, labels: Mapping[str, str]) -> list[Problem]:
        """Why it may not write this series; nothing where it may. Each problem stands at `/<label>`."""

    def suspects(self, keys: Sequence[Key]) -> Collection[Key]:
        """Of series that it was allowed before, those that it may no longer write."""


class Source(Protocol):
    """Who writes."""

    @property
    def owner(self) -> Owner: ...

    def rules_for(self, keys: Sequence[Key]) -> Rules:
        """What decides of these series, as of now."""

    def describes(self, family: str) -> bool:
        """Whether its metadata of this family counts."""


@dataclass(frozen=True)
class TargetSource:
    """A node or a gateway: its series carry its own label, and no other target's."""

    owner: Owner

    def rules_for(self, keys: Sequence[Key]) -> Rules:
        return self

    def foreign(self, labels: Mapping[str, str]) -> list[Problem]:
        problems = []
        kind, name = self.owner.kind, self.owner.name
        mine = f'every series of {self.owner} carries {kind}="{name}"'
        if labels.get(METRIC_NAME, "").count(":") >= RECORDED_COLONS:
            message = "names of the form level:metric:operations are recorded here from others; give another"
            problems.append(Problem(f"/{METRIC_NAME}", "recorded_name", message))
        if kind not in labels:
            problems.append(Problem(f"/{kind}", "missing_owner", mine))
        for label in TARGET_LABELS:
            if label in labels and (label, labels[label]) != (kind, name):
                message = (
                    f"{label}={labels[label]!r} is another's; {mine}"
                    if label == kind
                    else (f"only a {label} writes series with the label {label}; {mine} and no label {label}")
                )
                problems.append(Problem(f"/{label}", "foreign_owner", message))
        return problems

    def suspects(self, keys: Sequence[Key]) -> Collection[Key]:
        """None: its name never changes."""
        return ()

    def describes(self, family: str) -> bool:
        return True


@dataclass(frozen=True)
class WriterRules:
    """Of a Prometheus, Alloy or vmagent: its series carry its `matchers`, and are nobody's else.

    Of the targets and names that the series name, `targets`: label and name of each that has enrolled; `recorded`:
    names that recording rules give. Both may come to name a series that was taken before.
    """

    owner: Owner
    matchers: Mapping[str, str]
    targets: Collection[tuple[str, str]] = field(default_factory=frozenset)
    recorded: Collection[str] = field(default_factory=frozenset)

    def foreign(self, labels: Mapping[str, str]) -> list[Problem]:
        problems = [
            Problem(f"/{label}", "missing_label", f'every series of {self.owner} carries {label}="{value}"')
            for label, value in self.matchers.items()
            if labels.get(label) != value
        ]
        name = labels.get(METRIC_NAME, "")
        if name.startswith(OWN_PREFIX):
            message = f"{OWN_PREFIX}… are names of gateways, agents and the control plane; leave such series out"
            problems.append(Problem(f"/{METRIC_NAME}", "own_name", message))
        if name in self.recorded:
            message = f"a recording rule here gives {name}; leave it out, or give another name"
            problems.append(Problem(f"/{METRIC_NAME}", "recorded_name", message))
        for label in TARGET_LABELS:
            if (label, labels.get(label)) in self.targets:
                message = (
                    f"the {label} {labels[label]!r} has enrolled here, and writes its own series; leave these out, or "
                    f"give the label {label} another name"
                )
                problems.append(Problem(f"/{label}", "foreign_owner", message))
        return problems

    def suspects(self, keys: Sequence[Key]) -> Collection[Key]:
        """Told by their bytes alone, which are as `key_of` makes them."""
        return {
            key
            for key in keys
            if not self._foreign_labels.isdisjoint(key) or any(own not in key for own in self._own_labels)
        }

    @cached_property
    def _own_labels(self) -> Key:
        return key_of(self.matchers)

    @cached_property
    def _foreign_labels(self) -> frozenset[bytes]:
        pairs = (*self.targets, *((METRIC_NAME, name) for name in self.recorded))
        return frozenset(key_of({label: value})[0] for label, value in pairs)


def named_in(keys: Sequence[Key]) -> dict[str, set[str]]:
    """The values of `__name__` and of targets' labels in some series; a value is left out where it cannot be read."""
    found: dict[str, set[str]] = {name: set() for name in _TELLING_LABELS}
    for encoded in set().union(*keys):
        if encoded.startswith(_TELLING_BEGINNINGS):
            try:
                label = Label.FromString(encoded)
            except DecodeError:
                continue
            found.get(label.name, set()).add(label.value)
    return found


def check_series(
    rules: Rules, keys: Sequence[Key], known: Container[Key], bounds: Bounds
) -> tuple[dict[Key, dict[str, str]], list[Problem]]:
    """Labels of the series that are not `known` (those passed this check before), and every rule that they break.

    Problems stand at `/timeseries/<number>/<label>`, the same one once.
    """
    fresh: dict[Key, dict[str, str]] = {}
    problems: dict[tuple[str, str, str], Problem] = {}
    suspects = rules.suspects(keys)
    for number, key in enumerate(keys):
        if key in fresh or (key in known and key not in suspects):
            continue
        labels, found = labels_of(key, bounds)
        for problem in found or rules.foreign(labels) or _another_form(key, labels):
            where = pointer(f"/timeseries/{number}", problem.path.removeprefix("/"))
            same = (problem.path, problem.rule, problem.message)
            problems.setdefault(same, Problem(where, problem.rule, problem.message))
        fresh[key] = labels
    return fresh, list(problems.values())


def _another_form(key: Key, labels: Mapping[str, str]) -> list[Problem]:
    """Labels are known again by their bytes: of protobuf's forms, the one that all writers use is taken."""
    if key == key_of(labels):
        return []
    return [Problem("/labels", "label_encoding", "encode a label as its name, then its value, and nothing else")]
