"""`label_replace` and `label_join`. Source: prometheus/promql/functions.go, and Go's regexp.Expand for the template."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from controlplane.telemetry.patterns import BadPattern, pattern
from controlplane.telemetry.promql.errors import Unanswerable
from controlplane.telemetry.promql.values import Labels, Vector, distinct

# A name is as long as it can be: $1x is the group named 1x.
_REFERENCE = re.compile(r"\$(?:(\$)|(\w+)|\{(\w+)\})")
_NUMBER = re.compile("0|[1-9][0-9]{0,7}")


def label_replace(
    vector: Vector, target: str, template: str, source: str, regex: str, touch: Callable[[int], None]
) -> Vector:
    """Where the whole of `source` matches `regex`, `target` becomes `template` with its groups put in.

    `touch` ends what takes too long. Raises QueryError.
    """
    _check_name(target, "destination", "label_replace")
    try:
        compiled = pattern(regex)
    except BadPattern as error:
        raise Unanswerable(str(error)) from error
    results: dict[str, str | None] = {}
    for value in dict.fromkeys(labels.get(source, "") for labels in vector.labels):
        touch(0)
        groups = compiled.groups(value)
        results[value] = None if groups is None else _expanded(template, groups, compiled.names)
    rows = []
    for labels in vector.labels:
        result = results[labels.get(source, "")]
        rows.append(labels if result is None else _with(labels, target, result))
    return distinct(Vector(rows, vector.values, vector.present))


def label_join(vector: Vector, target: str, separator: str, *sources: str) -> Vector:
    """`target` becomes the values of `sources`, in this order. Raises Unanswerable."""
    for source in sources:
        _check_name(source, "source", "label_join")
    _check_name(target, "destination", "label_join")
    rows = [
        _with(labels, target, separator.join(labels.get(source, "") for source in sources)) for labels in vector.labels
    ]
    return distinct(Vector(rows, vector.values, vector.present))


def _expanded(template: str, groups: Sequence[str], names: Sequence[str]) -> str:
    """A group that there is not is empty; a $ that begins no name stands for itself."""

    def value(reference: re.Match[str]) -> str:
        if reference[1]:
            return "$"
        name = reference[2] or reference[3]
        if _NUMBER.fullmatch(name):
            return groups[int(name)] if int(name) < len(groups) else ""
        return groups[names.index(name) + 1] if name in names else ""

    return _REFERENCE.sub(value, template)


def _with(labels: Labels, name: str, value: str) -> Labels:
    """An empty value is no label."""
    rest = {other: own for other, own in labels.items() if other != name}
    return {**rest, name: value} if value else rest


def _check_name(name: str, role: str, function: str) -> None:
    if not name:
        raise Unanswerable(f"invalid {role} label name in {function}(): {name}")
