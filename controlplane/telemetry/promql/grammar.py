"""From text to a tree that can be evaluated, with everything that is not supported refused before a sample is read."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from decimal import Decimal

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

# In comments quotes stand for nothing. A string may lack its end, or each \' in it would be tried as a beginning.
# `raw`: the parser reads escapes in `…` too, where PromQL has none.
_STRINGS_AND_COMMENTS = re.compile(r"""'(?:[^'\\]|\\.)*'?|"(?:[^"\\]|\\.)*"?|\#[^\n]*|`(?P<raw>[^`]*)`""", re.DOTALL)
_OPERATORS = re.compile(r"[-+*/%^(]|[=!<>]=?|\b(?:and|or|unless|atan2)\b", re.IGNORECASE)
# The parser forgets a unary plus, and with it that what follows is no selector any more.
_PLUS_SELECTOR = re.compile(r"\b(timestamp|absent)[\s(]*\(\s*\+", re.IGNORECASE)
# Prometheus counts a duration's nanoseconds in 64 bits, and we a moment's milliseconds as whole doubles.
_MAX_DURATION = timedelta(seconds=2**63 // 10**9)
_MAX_MOMENT_MS = 2**53
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
    bare = _STRINGS_AND_COMMENTS.sub("", text)
    if len(_OPERATORS.findall(bare)) > MAX_OPERATORS:
        raise BadQuery(f"a query may have {MAX_OPERATORS} operators, calls and matchers; record parts of it as series")
    try:
        tree: ast.Expr = ast.parse(_STRINGS_AND_COMMENTS.sub(_quoted, text))
        # Reading the tree makes Python's values of the parser's, which can fail as parsing can.
        _check(tree)
    except ValueError as error:
        raise BadQuery(f'invalid parameter "query": {error}') from error
    except BaseException as error:
        if isinstance(error, OverflowError) or _is_panic(error):
            raise BadQuery('invalid parameter "query": duration out of range') from error
        raise
    if function := _PLUS_SELECTOR.search(bare):
        raise Unsupported(f"a unary plus within {function[1]}()")
    return tree


def _quoted(found: re.Match[str]) -> str:
    return found[0] if found["raw"] is None else json.dumps(found["raw"], ensure_ascii=False)


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


def selector_of(tree: ast.Expr) -> ast.VectorSelector | None:
    """The selector that an argument is, of an instant or a range, in parentheses or not."""
    match tree:
        case ast.ParenExpr():
            return selector_of(tree.expr)
        case ast.MatrixSelector():
            return tree.vector_selector
        case ast.VectorSelector():
            return tree
    return None


def milliseconds(duration: timedelta | None) -> int:
    """Whole ones, as Prometheus takes a duration; none is 0. Raises BadQuery for what is longer than it takes."""
    if duration is None:
        return 0
    if abs(duration) > _MAX_DURATION:
        raise BadQuery('invalid parameter "query": duration out of range')
    whole = abs(duration) // timedelta(milliseconds=1)
    return whole if duration >= timedelta(0) else -whole


def moment_ms(at: ast.AtModifier) -> int | None:
    """The moment of `@ <seconds>`; None for `@ start()` and `@ end()`. Raises BadQuery, Unsupported."""
    if at.type != ast.AtModifierType.At:
        return None
    # The parser's text has three decimals.
    moment = round(Decimal(str(at).removeprefix("@ ")) * 1000)
    if moment > _MAX_MOMENT_MS:
        raise BadQuery('invalid parameter "query": timestamp out of bounds for @ modifier')
    # It shows moments before 1970 as 0, and cannot give them otherwise.
    if moment == 0:
        try:
            at.at  # noqa: B018
        except BaseException as error:
            if _is_panic(error):
                raise Unsupported("@ with a moment before 1970") from error
            raise
    return moment


def _is_panic(error: BaseException) -> bool:
    """Whether the parser, which is Rust, met a number that its types do not hold. Python cannot import the class."""
    return type(error).__name__ == "PanicException"


def _check_times(selector: ast.VectorSelector | ast.SubqueryExpr) -> None:
    milliseconds(selector.offset)
    if selector.at is not None:
        moment_ms(selector.at)


def _check_timestamp(selector: ast.VectorSelector | None) -> None:
    # Prometheus then looks where `@` says among samples where `offset` says, or where the query's other selectors do.
    if selector and selector.at is not None and selector.offset is not None:
        raise Unsupported("timestamp() of a selector with both @ and offset")


def _has_no_moment(tree: ast.Expr) -> bool:
    """Whether a node has no `@`."""
    match tree:
        case ast.MatrixSelector():
            return tree.vector_selector.at is None
        case ast.VectorSelector() | ast.SubqueryExpr():
            return tree.at is None
    return True


def _check_subquery(tree: ast.SubqueryExpr) -> None:
    milliseconds(tree.range)
    if tree.step is not None and milliseconds(tree.step) == 0:
        raise Unsupported("a subquery's step of less than a millisecond")
    # Where such a subquery's first step is its parent's, Prometheus looks elsewhere than `@` says.
    if (tree.at is not None or tree.offset is not None) and not ast.walk(tree.expr, _has_no_moment):
        raise Unsupported("@ within a subquery that has @ or offset itself")


def _check(tree: ast.Expr) -> None:
    match tree:
        case ast.SubqueryExpr():
            _check_times(tree)
            _check_subquery(tree)
            _check(tree.expr)
        case ast.VectorSelector():
            _check_times(tree)
            matchers_of(tree)
        case ast.MatrixSelector():
            milliseconds(tree.range)
            _check(tree.vector_selector)
        case ast.Call():
            if tree.func.name not in CALLS:
                raise Unsupported(f"the function {tree.func.name}()")
            if tree.func.name == "timestamp":
                _check_timestamp(selector_of(tree.args[0]))
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
