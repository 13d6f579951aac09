"""Evaluates a query for all its steps at once: every node of the tree gives a matrix of rows × steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import promql_parser as ast

from controlplane.telemetry.promql import binary
from controlplane.telemetry.promql.aggregations import aggregate
from controlplane.telemetry.promql.binary import Card, Matching
from controlplane.telemetry.promql.budget import Budget
from controlplane.telemetry.promql.errors import BadQuery, Unsupported
from controlplane.telemetry.promql.functions import READS_WHOLE_WINDOWS, Context, call
from controlplane.telemetry.promql.grammar import matchers_of, milliseconds, moment_ms, selector_of
from controlplane.telemetry.promql.grouping import Grouping
from controlplane.telemetry.promql.subqueries import grid, windows_of
from controlplane.telemetry.promql.values import Scalar, Value, Vector, Windows, empty
from controlplane.telemetry.store.columns import Bools, Columns, Ints, bits_of
from controlplane.telemetry.store.matching import Matcher, Operator
from controlplane.telemetry.store.reader import Selection
from wire.write_body import METRIC_NAME, STALE_BITS

LOOK_BACK_MS = 5 * 60_000
# A subquery's step where it names none: Prometheus' own default of the interval at which it evaluates rules.
SUBQUERY_STEP_MS = 60_000
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
    """One query: its steps, where samples come from, and what it may cost. All calls raise QueryError.

    `bounds_ms`: what `@ start()` and `@ end()` mean where that is not the first and the last step. `parts`: aggregates
    by their text, kept for other queries of the same steps; nothing of them may be changed.
    """

    times_ms: Ints
    select: Select
    budget: Budget
    look_back_ms: int = LOOK_BACK_MS
    bounds_ms: tuple[int, int] | None = None
    parts: dict[str, Vector] | None = None

    def evaluate(self, tree: ast.Expr) -> Value:
        match tree:
            case ast.NumberLiteral():
                self.budget.touch(len(self.times_ms))
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
            case ast.SubqueryExpr():
                return self._subquery(tree)
            case ast.Call():
                return self._call(tree)
            case ast.AggregateExpr():
                return self._aggregate(tree) if self.parts is None else self._part(tree, self.parts)
            case ast.BinaryExpr():
                return self._binary(tree)
        raise Unsupported(type(tree).__name__)

    def windows(self, tree: ast.MatrixSelector) -> Windows:
        """The samples of a range selector, without markers of stale series."""
        range_ms = milliseconds(tree.range)
        ends = self._shifted(tree.vector_selector)
        labels, columns = self._selected(tree.vector_selector, int(ends.min()) - range_ms, int(ends.max()))
        columns = columns.take(bits_of(columns.values) != STALE_BITS)
        lo, hi = (_after(columns, len(labels), at) for at in (ends - range_ms, ends))
        return Windows(labels, columns.times_ms, columns.values, lo, hi, ends, range_ms)

    def _subquery(self, tree: ast.SubqueryExpr) -> Windows:
        """The values of an expression at moments of its own, as samples of a range."""
        range_ms, ends = milliseconds(tree.range), self._shifted(tree)
        step_ms = milliseconds(tree.step) or SUBQUERY_STEP_MS
        moments = grid(int(ends.min()) - range_ms, int(ends.max()), step_ms)
        self.budget.touch(len(moments))
        if not moments:
            return windows_of(empty(0), np.empty(0, np.int64), ends, range_ms)
        times = np.arange(moments.start, moments.stop, moments.step, dtype=np.int64)
        value = replace(self, times_ms=times, bounds_ms=self._bounds(), parts=None).evaluate(tree.expr)
        if not isinstance(value, Vector):
            raise BadQuery("a subquery takes an instant vector")
        self.budget.touch(len(value.labels) * (len(times) + len(ends)))
        return windows_of(value, times, ends, range_ms)

    def _instant(self, tree: ast.VectorSelector, *, moments: bool = False) -> Vector:
        """The newest sample of each series that is not older than the look-back, unless the series went stale.

        Its value, or for `moments` its own time in seconds.
        """
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
        return Vector(labels, columns.times_ms[inside] / 1000 if moments else values, present).rows(rows)

    def _selected(self, tree: ast.VectorSelector, after_ms: int, until_ms: int) -> Selection:
        selection = self.select(matchers_of(tree), after_ms, until_ms, self.budget.touch)
        self.budget.touch(len(selection.labels) * len(self.times_ms))
        return selection

    def _shifted(self, selector: ast.VectorSelector | ast.SubqueryExpr) -> Ints:
        """When each step looks at the series: `@` and `offset` applied."""
        times = self.times_ms
        if selector.at is not None:
            moment = moment_ms(selector.at)
            if moment is None:
                start_ms, end_ms = self._bounds()
                moment = start_ms if selector.at.type == ast.AtModifierType.Start else end_ms
            times = np.full(len(times), moment)
        return times - milliseconds(selector.offset)

    def _bounds(self) -> tuple[int, int]:
        return self.bounds_ms or (int(self.times_ms[0]), int(self.times_ms[-1]))

    def _call(self, tree: ast.Call) -> Value:
        self.budget.touch(len(self.times_ms))
        if tree.func.name == "timestamp" and (selector := selector_of(tree.args[0])):
            return self._instant(selector, moments=True).without_name()
        arguments = [self.evaluate(argument) for argument in tree.args]
        if tree.func.name in READS_WHOLE_WINDOWS:
            for windows in arguments:
                if isinstance(windows, Windows):
                    self.budget.touch(int((windows.hi - windows.lo).sum()))
        labels = _selector_labels(tree.args[0]) if tree.args else {}
        return call(tree.func.name, Context(self.times_ms, labels, self.budget.touch), arguments)

    def _part(self, tree: ast.AggregateExpr, parts: dict[str, Vector]) -> Vector:
        text = tree.prettify()
        if text not in parts:
            parts[text] = self._aggregate(tree)
        return parts[text]

    def _aggregate(self, tree: ast.AggregateExpr) -> Vector:
        grouping = Grouping()
        if tree.modifier is not None:
            grouping = Grouping(tree.modifier.labels, tree.modifier.type == ast.AggModifierType.Without)
        parameter = self.evaluate(tree.param) if tree.param is not None else None
        vector = self.evaluate(tree.expr)
        if not isinstance(vector, Vector) or not isinstance(parameter, Scalar | str | None):
            raise BadQuery(f"{tree.op} aggregates an instant vector")
        return aggregate(str(tree.op), vector, grouping, parameter, self.budget.touch)

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
                return binary.vectors(operator, left, right, matching, self.budget.touch)
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
    selector = selector_of(tree)
    labels: dict[str, str] = {}
    named = set()
    for matcher in matchers_of(selector) if selector else ():
        if matcher.operator is Operator.EQUAL and matcher.name not in named:
            labels[matcher.name] = matcher.value
            named.add(matcher.name)
        else:
            labels.pop(matcher.name, None)
    return {name: value for name, value in labels.items() if value and name != METRIC_NAME}
