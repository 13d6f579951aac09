"""Operators between scalars and vectors: arithmetic, comparison, sets. Source: prometheus/promql/engine.go."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain

import numpy as np

from controlplane.telemetry.promql.errors import Unanswerable
from controlplane.telemetry.promql.values import (
    Identity,
    Labels,
    Scalar,
    Vector,
    distinct,
    dropped,
    empty,
    identity,
    kept,
)
from controlplane.telemetry.store.columns import Bools, Floats
from wire.write_body import METRIC_NAME

ARITHMETIC: dict[str, Callable[[Floats, Floats], Floats]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.fmod,
    "^": np.power,
    "atan2": np.arctan2,
}
COMPARISON: dict[str, Callable[[Floats, Floats], Bools]] = {
    "==": np.equal,
    "!=": np.not_equal,
    ">": np.greater,
    "<": np.less,
    ">=": np.greater_equal,
    "<=": np.less_equal,
}
SETS = frozenset({"and", "or", "unless"})
OPERATORS = frozenset({*ARITHMETIC, *COMPARISON, *SETS})


class Card(Enum):
    """Which side may have many rows a match: `group_left` is many to one, `group_right` one to many."""

    ONE_TO_ONE = "one-to-one"
    MANY_TO_ONE = "many-to-one"
    ONE_TO_MANY = "one-to-many"


@dataclass(frozen=True)
class Matching:
    """`on (names)`, or `ignoring (names)`; `include`: labels that come from the one side."""

    card: Card = Card.ONE_TO_ONE
    names: Sequence[str] = ()
    on: bool = False
    include: Sequence[str] = ()
    return_bool: bool = False

    def signature(self, labels: Labels) -> Identity:
        return identity(kept(labels, self.names) if self.on else dropped(labels, (*self.names, METRIC_NAME)))


def scalars(operator: str, left: Scalar, right: Scalar) -> Scalar:
    with np.errstate(all="ignore"):
        if operator in COMPARISON:
            return Scalar(COMPARISON[operator](left.values, right.values).astype(np.float64))
        return Scalar(ARITHMETIC[operator](left.values, right.values))


def with_scalar(operator: str, vector: Vector, scalar: Scalar, *, scalar_left: bool, return_bool: bool) -> Vector:
    """A comparison keeps the vector's rows where it holds; with `bool` it gives 0 or 1."""
    left, right = (scalar.values, vector.values) if scalar_left else (vector.values, scalar.values)
    with np.errstate(all="ignore"):
        if operator in ARITHMETIC:
            return vector.with_values(ARITHMETIC[operator](left, right)).without_name()
        holds = COMPARISON[operator](left, right)
    if return_bool:
        return vector.with_values(holds.astype(np.float64)).without_name()
    return Vector(vector.labels, vector.values, vector.present & holds)


def vectors(operator: str, left: Vector, right: Vector, matching: Matching, touch: Callable[[int], None]) -> Vector:
    """Arithmetic and comparison between rows with the same signature.

    `touch` is told of the result's size before it is made. Raises Unanswerable for an ambiguous match.
    """
    steps = left.values.shape[1]
    if not left.labels or not right.labels:
        return empty(steps)
    swapped = matching.card is Card.ONE_TO_MANY
    many, one = (right, left) if swapped else (left, right)
    # Steps at which a side has nothing have no result, and so no ambiguity either.
    both: Bools = np.any(many.present, axis=0) & np.any(one.present, axis=0)
    partners = _by_signature(one.labels, matching)
    for signature, rows in partners.items():
        if len(rows) > 1:
            _check_one(signature, one.rows(np.array(rows)), both, "left" if swapped else "right")
    matches = [partners.get(matching.signature(labels), []) for labels in many.labels]
    touch(sum(map(len, matches)) * steps)
    many_rows = np.repeat(np.arange(len(matches)), [len(rows) for rows in matches])
    one_rows = np.array(list(chain.from_iterable(matches)), np.int64)
    if not len(one_rows):
        return empty(steps)
    many_values, one_values = many.values[many_rows], one.values[one_rows]
    present = many.present[many_rows] & one.present[one_rows]
    labels = [
        _result_labels(many.labels[row], one.labels[partner], operator, matching)
        for row, partner in zip(many_rows.tolist(), one_rows.tolist(), strict=True)
    ]
    # Before a comparison leaves any out: a match is ambiguous whatever the values are.
    _check_many([many.labels[row] for row in many_rows.tolist()], labels, present, matching)
    first, second = (one_values, many_values) if swapped else (many_values, one_values)
    with np.errstate(all="ignore"):
        if operator in ARITHMETIC:
            values = ARITHMETIC[operator](first, second)
        else:
            holds = COMPARISON[operator](first, second)
            values = holds.astype(np.float64) if matching.return_bool else first
            present = present if matching.return_bool else present & holds
    return distinct(Vector(labels, values, present))


def sets(operator: str, left: Vector, right: Vector, matching: Matching) -> Vector:
    """and, or, unless: rows of the left, and for `or` those of the right that have no match."""
    if operator == "or":
        alone = right.present & ~_matched(right, left, matching)
        labels = left.labels + right.labels
        values, present = np.vstack((left.values, right.values)), np.vstack((left.present, alone))
        return distinct(Vector(labels, values, present))
    matched = _matched(left, right, matching)
    return Vector(left.labels, left.values, left.present & (matched if operator == "and" else ~matched))


def _matched(rows: Vector, others: Vector, matching: Matching) -> Bools:
    """Where a row's signature is present on the other side."""
    found = np.zeros(rows.present.shape, np.bool_)
    partners = _by_signature(others.labels, matching)
    seen: dict[Identity, Bools] = {}
    for row, labels in enumerate(rows.labels):
        signature = matching.signature(labels)
        if signature in partners:
            if signature not in seen:
                seen[signature] = np.any(others.present[partners[signature]], axis=0)
            found[row] = seen[signature]
    return found


def _by_signature(rows: Iterable[Labels], matching: Matching) -> dict[Identity, list[int]]:
    found: defaultdict[Identity, list[int]] = defaultdict(list)
    for row, labels in enumerate(rows):
        found[matching.signature(labels)].append(row)
    return dict(found)


def _check_one(signature: Identity, rows: Vector, both: Bools, side: str) -> None:
    """Of the side that may have one row a match. Raises Unanswerable."""
    twice = np.flatnonzero((rows.present.sum(axis=0) > 1) & both)
    if len(twice):
        shown = [_shown(identity(rows.labels[row])) for row in np.flatnonzero(rows.present[:, twice[0]])]
        raise Unanswerable(
            f"found duplicate series for the match group {_shown(signature)} on the {side} hand-side of the operation: "
            f"[{', '.join(sorted(shown[:2]))}];many-to-many matching not allowed: matching labels must be unique on "
            "one side"
        )


def _check_many(rows: Sequence[Labels], results: Sequence[Labels], present: Bools, matching: Matching) -> None:
    """Of the other side. Raises Unanswerable where two of its rows match, or with `group_…` give the same labels."""
    alone = matching.card is Card.ONE_TO_ONE
    places: defaultdict[tuple[Identity, Identity], list[int]] = defaultdict(list)
    for place, (labels, result) in enumerate(zip(rows, results, strict=True)):
        places[matching.signature(labels), () if alone else identity(result)].append(place)
    for group in places.values():
        if len(group) > 1 and np.any(present[group].sum(axis=0) > 1):
            raise Unanswerable(
                "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)"
                if alone
                else "multiple matches for labels: grouping labels must ensure unique matches"
            )


def _result_labels(many: Labels, one: Labels, operator: str, matching: Matching) -> Labels:
    labels = many
    if operator in ARITHMETIC or matching.return_bool:
        labels = dropped(labels, (METRIC_NAME,))
    if matching.card is Card.ONE_TO_ONE:
        return kept(labels, matching.names) if matching.on else dropped(labels, matching.names)
    included = {name: one[name] for name in matching.include if name in one}
    return {**dropped(labels, matching.include), **included}


def _shown(signature: Identity) -> str:
    return "{" + ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in signature) + "}"
