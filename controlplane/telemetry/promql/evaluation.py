"""Evaluates a query for all its steps at once: every node of the tree gives a matrix of rows × steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import promql_parser as ast

from controlplane.telemetry.promql import binary
from controlplane.telemetry.promql.aggregations import Grouping, aggregate
from controlplane.telemetry.promql.binary import Card, Matching
from controlplane.telemetry.promql.budget import Budget
from controlplane.telemetry.promql.errors import BadQuery, Unsupported
from controlplane.telemetry.promql.functions import READS_WHOLE_WINDOWS, Context, call
from controlplane.telemetry.promql.grammar import matchers_of, milliseconds
from controlplane.telemetry.promql.values import Scalar, Value, Vector, Windows, empty
from controlplane.telemetry.store.columns import Bools, Columns, Ints, bits_of
from controlplane.telemetry.store.matching import Matcher, Operator
from controlplane.telemetry.store.reader import Selection
from wire.write_body import METRIC_NAME, STALE_BITS

LOOK_BACK_MS = 5 * 60_000
Select = Callable[[Sequence[Matcher], int, int, Callable[[int], None]], Selection]

# By text: the parser's enumerations cannot be keys.
_CARDS = {
    str(ast.VectorMatchCardinality.OneToOne): Card.ONE_TO_ONE,
    str(ast.VectorMatchCardinality.ManyToOne): Card.MANY_TO_ONE,
    str(ast.VectorMatchCardinality.OneToMany): Card.ONE_TO_MANY,
    # Of set operators, which look at signatures alone.
    str(ast.VectorMatchCardinality.ManyToMany): Card.ONE_TO_ONE,
}


@dataclass(frozen=True)
class Evaluation:
    """One query: its steps, where samples come from, and what it may cost. All calls raise QueryError."""

    times_ms: Ints
    select: Select
    budget: Budget
    look_back_ms: int = LOOK_BACK_MS

    def evaluate(self, tree: ast.Expr) -> Value:
        match tree:
            case ast.NumberLiteral():
                return Scalar(np.full(len(self.times_ms), tree.val))
            case ast.StringLiteral():
                return tree.val
            case ast.ParenExpr():
                return self.evaluate(tree.expr)
            case ast.UnaryExpr():
                return self._negated(self.evaluate(tree.expr))
            case ast.VectorSelector():
                return self._instant(tree)
            case ast.MatrixSelector():
                return self.windows(tree)
            case ast.Call():
                return self._call(tree)
            case ast.AggregateExpr():
                return self._aggregate(tree)
            case ast.BinaryExpr():
                return self._binary(tree)
        raise Unsupported(type(tree).__name__)

    def windows(self, tree: ast.MatrixSelector) -> Windows:
        """The samples of a range selector, without markers of stale series."""
        range_ms = milliseconds(tree.range)
        if range_ms <= 0:
            raise BadQuery("a range must be longer than 0")
        ends = self._shifted(tree.vector_selector)
        labels, columns = self._selected(tree.vector_selector, int(ends.min()) - range_ms, int(ends.max()))
        columns = columns.take(bits_of(columns.values) != STALE_BITS)
        lo, hi = (_after(columns, len(labels), at) for at in (ends - range_ms, ends))
        return Windows(labels, columns.times_ms, columns.values, lo, hi, ends, range_ms)

    def _instant(self, tree: ast.VectorSelector) -> Vector:
        """The newest sample of each series that is not older than the look-back, unless the series went stale."""
        at = self._shifted(tree)
        labels, columns = self._selected(tree, int(at.min()) - self.look_back_ms, int(at.max()))
        if not labels:
            return empty(len(at))
        newest = _after(columns, len(labels), at) - 1
        first = np.searchsorted(columns.series, np.arange(len(labels)))[:, None]
        inside = np.maximum(newest, 0)
        values = columns.values[inside]
        fresh = (newest >= first) & (columns.times_ms[inside] > at - self.look_back_ms)
        present: Bools = fresh & (bits_of(values) != STALE_BITS)
        rows = np.flatnonzero(present.any(axis=1))
        return Vector(labels, values, present).rows(rows)

    def _selected(self, tree: ast.VectorSelector, after_ms: int, until_ms: int) -> Selection:
        selection = self.select(matchers_of(tree), after_ms, until_ms, self.budget.touch)
        self.budget.touch(len(selection.labels) * len(self.times_ms))
        return selection

    def _shifted(self, selector: ast.VectorSelector) -> Ints:
        """When each step looks at the series: `@` and `offset` applied."""
        times = self.times_ms
        if selector.at is not None:
            match selector.at.type:
                case ast.AtModifierType.Start:
                    moment = int(times[0])
                case ast.AtModifierType.End:
                    moment = int(times[-1])
                case _:
                    moment = round(selector.at.at.timestamp() * 1000) if selector.at.at else 0
            times = np.full(len(times), moment)
        return times - milliseconds(selector.offset) if selector.offset is not None else times

    def _call(self, tree: ast.Call) -> Value:
        arguments = [self.evaluate(argument) for argument in tree.args]
        if tree.func.name in READS_WHOLE_WINDOWS:
            for windows in arguments:
                if isinstance(windows, Windows):
                    self.budget.touch(int((windows.hi - windows.lo).sum()))
        labels = _selector_labels(tree.args[0]) if tree.args else {}
        return call(tree.func.name, Context(self.times_ms, labels), arguments)

    def _aggregate(self, tree: ast.AggregateExpr) -> Vector:
        grouping = Grouping()
        if tree.modifier is not None:
            grouping = Grouping(tree.modifier.labels, tree.modifier.type == ast.AggModifierType.Without)
        parameter = self.evaluate(tree.param) if tree.param is not None else None
        vector = self.evaluate(tree.expr)
        if not isinstance(vector, Vector) or not isinstance(parameter, Scalar | None):
            raise BadQuery(f"{tree.op} aggregates an instant vector")
        return aggregate(str(tree.op), vector, grouping, parameter)

    def _binary(self, tree: ast.BinaryExpr) -> Value:
        operator, matching = str(tree.op), _matching(tree.modifier)
        left, right = self.evaluate(tree.lhs), self.evaluate(tree.rhs)
        match left, right:
            case Scalar(), Scalar():
                return binary.scalars(operator, left, right)
            case Vector(), Scalar():
                return binary.with_scalar(operator, left, right, scalar_left=False, return_bool=matching.return_bool)
            case Scalar(), Vector():
                return binary.with_scalar(operator, right, left, scalar_left=True, return_bool=matching.return_bool)
            case Vector(), Vector():
                # A match can make as many rows as the sides have together; each step of each counts.
                self.budget.touch((len(left.labels) + len(right.labels)) * len(self.times_ms))
                if operator in binary.SETS:
                    return binary.sets(operator, left, right, matching)
                return binary.vectors(operator, left, right, matching)
        raise BadQuery(f"the operator {operator} takes scalars and instant vectors")

    def _negated(self, value: Value) -> Value:
        match value:
            case Scalar():
                return Scalar(-value.values)
            case Vector():
                return value.with_values(-value.values).without_name()
        raise BadQuery("only a scalar or an instant vector can be negated")


def _after(columns: Columns, rows: int, times_ms: Ints) -> Ints:
    """For each row and time the place after the row's last sample that is not later (rows × times)."""
    starts = np.searchsorted(columns.series, np.arange(rows))[:, None]
    if not len(columns.series):
        return np.zeros((rows, len(times_ms)), np.int64)
    base = int(columns.times_ms.min())
    span = int(columns.times_ms.max()) - base + 2
    # One ascending number a sample, so that one search answers for all rows and times.
    numbers = columns.series * span + (columns.times_ms - base)
    wanted = np.arange(rows)[:, None] * span + np.clip(times_ms - base, -1, span - 1)
    return np.maximum(np.searchsorted(numbers, wanted, side="right"), starts)


def _matching(modifier: ast.BinModifier | None) -> Matching:
    if modifier is None:
        return Matching()
    names = modifier.matching.labels if modifier.matching else ()
    on = modifier.matching is not None and modifier.matching.type == ast.LabelModifierType.Include
    card = _CARDS[str(modifier.card)]
    return Matching(card, names, on, modifier.group_labels or (), modifier.return_bool)


def _selector_labels(tree: ast.Expr) -> dict[str, str]:
    """Labels that `absent` can know of what it found nothing of: those that one equality matcher names."""
    if isinstance(tree, ast.ParenExpr):
        return _selector_labels(tree.expr)
    if not isinstance(tree, ast.VectorSelector):
        return {}
    labels: dict[str, str] = {}
    unclear = {METRIC_NAME}
    for matcher in matchers_of(tree):
        if matcher.operator is Operator.EQUAL and matcher.name not in labels:
            labels[matcher.name] = matcher.value
        else:
            unclear.add(matcher.name)
    return {name: value for name, value in labels.items() if name not in unclear}
