"""Samples as unit tests of rules write them: `1+1x10 _ 5 stale NaN _x3`.

Source: https://prometheus.io/docs/prometheus/latest/configuration/unit_testing_rules/#series
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import promql_parser as ast

from controlplane.telemetry.promql.errors import QueryError
from controlplane.telemetry.promql.grammar import matchers_of, parse
from controlplane.telemetry.store.matching import Operator
from wire.write_body import METRIC_NAME, STALE

SAMPLES_MAX = 200_000
_NUMBER = r"(?:[0-9]+\.?[0-9]*(?:e[-+]?[0-9]+)?|\.[0-9]+(?:e[-+]?[0-9]+)?|inf|nan)"
_ITEM = re.compile(
    rf"(?P<first>[-+]?{_NUMBER})(?:(?P<step>[-+]{_NUMBER})?x(?P<times>[0-9]{{1,9}}))?"
    r"|(?P<gap>_)(?:x(?P<gaps>[0-9]{1,9}))?|(?P<stale>stale)",
    re.IGNORECASE,
)
_SHOWN_CHARACTERS = 60


def values_of(text: str) -> list[float | None]:
    """One value an interval, None where there is no sample. Raises ValueError, which says what would be right."""
    values: list[float | None] = []
    for item in text.split():
        found = _ITEM.fullmatch(item)
        if found is None:
            raise ValueError(
                f"{item[:_SHOWN_CHARACTERS]!r} is not known here; "
                "there are 1, 1x10, 1+2x10, 9-1x4, NaN, Inf, _, _x10, stale"
            )
        if len(values) + int(found["times"] or found["gaps"] or 0) >= SAMPLES_MAX:
            raise ValueError(f"more than {SAMPLES_MAX} samples")
        values += _expanded(found)
    return values


def _expanded(item: re.Match[str]) -> Iterator[float | None]:
    if item["gap"]:
        yield from [None] * int(item["gaps"] or 1)
    elif item["stale"]:
        yield STALE
    else:
        value, step = float(item["first"]), float(item["step"] or 0)
        for _ in range(int(item["times"] or 0) + 1):
            yield value
            value += step


def labels_of(text: str) -> dict[str, str]:
    """The labels of a series as `name{label="value"}`, its name among them. Raises ValueError."""
    says = 'give a series such as up{node="n-1"}'
    if text.strip() in ("", "{}"):
        return {}
    try:
        tree = parse(text)
        matchers = matchers_of(tree) if isinstance(tree, ast.VectorSelector) else []
    except QueryError as error:
        raise ValueError(f"{says}: {error}") from error
    plain = isinstance(tree, ast.VectorSelector) and tree.offset is None and tree.at is None
    if not plain or any(matcher.operator is not Operator.EQUAL for matcher in matchers):
        raise ValueError(says)
    return {matcher.name: matcher.value for matcher in matchers if matcher.value or matcher.name == METRIC_NAME}
