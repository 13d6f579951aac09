"""From text to a tree that can be evaluated, with everything that is not supported refused before a sample is read."""

from __future__ import annotations

import re
from datetime import timedelta

import promql_parser as ast

from controlplane.telemetry.promql.aggregations import AGGREGATIONS
from controlplane.telemetry.promql.binary import OPERATORS
from controlplane.telemetry.promql.errors import BadQuery, Unsupported
from controlplane.telemetry.promql.functions import CALLS
from controlplane.telemetry.store.matching import BadMatcher, Matcher, Operator
from wire.write_body import METRIC_NAME

MAX_CHARACTERS = 16_384
# The parser and the evaluation go down the tree by recursion: this bounds their stacks.
MAX_OPERATORS = 200

_STRINGS = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`""", re.DOTALL)
_OPERATORS = re.compile(r"[-+*/%^(]|[=!<>]=?|\b(?:and|or|unless|atan2)\b", re.IGNORECASE)
# By text: the parser's enumerations cannot be keys.
_OPERATOR_OF = {
    str(ast.MatchOp.Equal): Operator.EQUAL,
    str(ast.MatchOp.NotEqual): Operator.NOT_EQUAL,
    str(ast.MatchOp.Re): Operator.MATCHES,
    str(ast.MatchOp.NotRe): Operator.MATCHES_NOT,
}


def parse(text: str) -> ast.Expr:
    """Raises: BadQuery (no PromQL), Unsupported (PromQL that this program does not evaluate)."""
    if len(text) > MAX_CHARACTERS:
        raise BadQuery(f"a query may have {MAX_CHARACTERS} characters")
    if len(_OPERATORS.findall(_STRINGS.sub("", text))) > MAX_OPERATORS:
        raise BadQuery(f"a query may have {MAX_OPERATORS} operators, calls and matchers; record parts of it as series")
    try:
        tree: ast.Expr = ast.parse(text)
    except ValueError as error:
        raise BadQuery(f'invalid parameter "query": {error}') from error
    _check(tree)
    return tree


def matchers_of(selector: ast.VectorSelector) -> list[Matcher]:
    """All conditions of a selector, that on the metric's name first. Raises BadQuery, Unsupported."""
    if selector.matchers.or_matchers:
        raise Unsupported("`or` between label matchers")
    named = [Matcher(METRIC_NAME, Operator.EQUAL, selector.name)] if selector.name else []
    try:
        return named + [
            Matcher(each.name, _OPERATOR_OF[str(each.op)], each.value) for each in selector.matchers.matchers
        ]
    except BadMatcher as error:
        raise BadQuery(f'invalid parameter "query": {error}') from error


def parse_selector(text: str) -> list[Matcher]:
    """The matchers of a series selector, as `match[]` gives it. Raises BadQuery, Unsupported."""
    tree = parse(text)
    if not isinstance(tree, ast.VectorSelector) or tree.offset is not None or tree.at is not None:
        raise BadQuery('invalid parameter "match[]": give a series selector such as up{node="n-1"}')
    return matchers_of(tree)


def milliseconds(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)


def _check(tree: ast.Expr) -> None:
    match tree:
        case ast.SubqueryExpr():
            raise Unsupported("subqueries")
        case ast.VectorSelector():
            matchers_of(tree)
        case ast.MatrixSelector():
            matchers_of(tree.vector_selector)
        case ast.Call():
            if tree.func.name not in CALLS:
                raise Unsupported(f"the function {tree.func.name}()")
            for argument in tree.args:
                _check(argument)
        case ast.AggregateExpr():
            if str(tree.op) not in AGGREGATIONS:
                raise Unsupported(f"the aggregation {tree.op}()")
            _check(tree.expr)
            if tree.param is not None:
                _check(tree.param)
        case ast.BinaryExpr():
            if str(tree.op) not in OPERATORS:
                raise Unsupported(f"the operator {tree.op}")
            fill = tree.modifier and tree.modifier.fill_values
            if fill and (fill.lhs is not None or fill.rhs is not None):
                raise Unsupported("fill values in vector matching")
            _check(tree.lhs)
            _check(tree.rhs)
        case ast.UnaryExpr() | ast.ParenExpr():
            _check(tree.expr)
        case ast.NumberLiteral() | ast.StringLiteral():
            pass
        case _:
            raise Unsupported(type(tree).__name__)
