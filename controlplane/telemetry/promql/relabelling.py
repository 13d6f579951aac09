"""`label_replace` and `label_join`. Source: prometheus/promql/functions.go, and Go's regexp.Expand for the template."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from controlplane.telemetry.patterns import BadPattern, pattern
from controlplane.telemetry.promql.errors import TooMuch, Unanswerable
from controlplane.telemetry.promql.values import Labels, Vector, distinct

# A name is as long as it can be: $1x is the group named 1x.
_REFERENCE = re.compile(r"\$(?:(\$)|(\w+)|\{(\w+)\})")
_NUMBER = re.compile("0|[1-9][0-9]{0,7}")
# As long as a writer's can be made by a setting. A template can put one value in thousands of times, and a query can do
# that again with what comes of it.
_LABEL_MAX_CHARACTERS = 65_536
# Text counts as the samples that take the memory of as much of it.
_CHARACTERS_A_SAMPLE = 24


def label_replace(
    vector: Vector, target: str, template: str, source: str, regex: str, touch: Callable[[int], None]
) -> Vector:
    """Where the whole of `source` matches `regex`, `target` becomes `template` with its groups put in.

    `touch` counts the text that is made, and time. Raises QueryError.
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
        touch(len(results[value] or "") // _CHARACTERS_A_SAMPLE)
    rows = []
    for labels in vector.labels:
        result = results[labels.get(source, "")]
        rows.append(labels if result is None else _with(labels, target, result))
    return distinct(Vector(rows, vector.values, vector.present))


def label_join(
    vector: Vector, target: str, separator: str, sources: Sequence[str], touch: Callable[[int], None]
) -> Vector:
    """`target` becomes the values of `sources`, in this order.

    `touch` counts the text that is made, and time. Raises QueryError.
    """
    for source in sources:
        _check_name(source, "source", "label_join")
    _check_name(target, "destination", "label_join")
    rows = []
    for labels in vector.labels:
        values = [labels.get(source, "") for source in sources]
        size = sum(map(len, values)) + len(separator) * max(len(values) - 1, 0)
        _check_size(size, "label_join")
        touch(size // _CHARACTERS_A_SAMPLE)
        rows.append(_with(labels, target, separator.join(values)))
    return distinct(Vector(rows, vector.values, vector.present))


def _expanded(template: str, groups: Sequence[str], names: Sequence[str]) -> str:
    """A group that there is not is empty; a $ that begins no name stands for itself. Raises TooMuch."""
    size = len(template)

    def value(reference: re.Match[str]) -> str:
        nonlocal size
        text = put_in(reference)
        size += len(text) - len(reference[0])
        # Before it is put together.
        _check_size(size, "label_replace")
        return text

    def put_in(reference: re.Match[str]) -> str:
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


def _check_size(characters: int, function: str) -> None:
    if characters > _LABEL_MAX_CHARACTERS:
        raise TooMuch(f"{function}() would make a label of more than {_LABEL_MAX_CHARACTERS} characters")


def _check_name(name: str, role: str, function: str) -> None:
    if not name:
        raise Unanswerable(f"invalid {role} label name in {function}(): {name}")
