"""Which series a writer may write: pure, on a body's encoded labels and what is known already."""

from __future__ import annotations

from collections.abc import Container, Sequence

from controlplane.core.models import TargetKind
from controlplane.telemetry.store.writer import Owner
from wire.problems import Problem, pointer
from wire.remote_write import Bounds, labels_of
from wire.write_body import METRIC_NAME, Key

# Of a recorded series' name; an engine's own has one.
_RECORDED_COLONS = 2
# Labels that say whose series it is; a writer's series carry its own one and no other.
_OWNER_LABELS = tuple(kind.value for kind in TargetKind)


def check_series(
    owner: Owner, keys: Sequence[Key], known: Container[Key], bounds: Bounds
) -> tuple[dict[Key, dict[str, str]], list[Problem]]:
    """Labels of the series that are not `known` (those passed this check before), and every rule that they break.

    Problems stand at `/timeseries/<number>/<label>`, the same one once.
    """
    fresh: dict[Key, dict[str, str]] = {}
    problems: dict[tuple[str, str, str], Problem] = {}
    for number, key in enumerate(keys):
        if key in known or key in fresh:
            continue
        labels, found = labels_of(key, bounds)
        for problem in found or _foreign(owner, labels):
            where = pointer(f"/timeseries/{number}", problem.path.removeprefix("/"))
            same = (problem.path, problem.rule, problem.message)
            problems.setdefault(same, Problem(where, problem.rule, problem.message))
        fresh[key] = labels
    return fresh, list(problems.values())


def _foreign(owner: Owner, labels: dict[str, str]) -> list[Problem]:
    problems = []
    mine = f'every series of {owner.label} {owner.name} carries {owner.label}="{owner.name}"'
    if labels.get(METRIC_NAME, "").count(":") >= _RECORDED_COLONS:
        message = "names of the form level:metric:operations are recorded here from others; give another"
        problems.append(Problem(f"/{METRIC_NAME}", "recorded_name", message))
    if owner.label not in labels:
        problems.append(Problem(f"/{owner.label}", "missing_owner", mine))
    for label in _OWNER_LABELS:
        if label in labels and (label, labels[label]) != (owner.label, owner.name):
            message = (
                f"{label}={labels[label]!r} is another's; {mine}"
                if label == owner.label
                else (f"only a {label} writes series with the label {label}; {mine} and no label {label}")
            )
            problems.append(Problem(f"/{label}", "foreign_owner", message))
    return problems
