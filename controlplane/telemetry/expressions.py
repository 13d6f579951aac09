"""What rules of every kind are made of: PromQL that can be evaluated here, and the labels that it is given."""

from __future__ import annotations

import re
from typing import Annotated

import promql_parser as ast
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from controlplane.core import fields as f
from controlplane.telemetry import settings_rows
from controlplane.telemetry.promql.binary import COMPARISON, SETS
from controlplane.telemetry.promql.errors import QueryError, Unsupported
from controlplane.telemetry.promql.grammar import MAX_CHARACTERS, parse

LABELS_MAX, LABEL_VALUE_MAX_CHARACTERS = 20, 200
_LABEL_NAME = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]{0,99}")


def _evaluable(expr: str) -> str:
    try:
        tree = parse(expr)
    except Unsupported as error:
        # An external server evaluates all of PromQL.
        if not settings_rows.PROMETHEUS_URL.read():
            raise PydanticCustomError("promql", "{message}", {"message": str(error)}) from error
        return expr
    except QueryError as error:
        raise PydanticCustomError("promql", "{message}", {"message": str(error)}) from error
    if isinstance(tree, ast.MatrixSelector | ast.SubqueryExpr | ast.StringLiteral):
        raise PydanticCustomError("promql", "give an expression whose result is an instant vector or a scalar")
    return expr


def keeps_what_holds(expr: str) -> bool:
    """Whether the result is what a comparison let through. Its values are what was compared, so that 0 says nothing."""
    try:
        return _keeps(parse(expr))
    except QueryError:
        # What an external server alone can read.
        return False


def _keeps(tree: ast.Expr) -> bool:
    match tree:
        case ast.ParenExpr():
            return _keeps(tree.expr)
        case ast.BinaryExpr():
            operator = str(tree.op)
            if operator in COMPARISON:
                return not (tree.modifier and tree.modifier.return_bool)
            # A set operator passes on what stands on its left, `or` also what stands on its right.
            return operator in SETS and _keeps(tree.lhs) and (operator != "or" or _keeps(tree.rhs))
    return False


def _label_name(name: str) -> str:
    if not _LABEL_NAME.fullmatch(name):
        raise PydanticCustomError("label", "give up to 100 of letters, digits and _, not a digit or __ first")
    return name


def _plain(text: str) -> str:
    if "{{" in text:
        raise PydanticCustomError("template", "labels say what is the same series: no templates")
    return text


# The text of a rule file ends with an empty line.
Expression = Annotated[
    f.Text,
    AfterValidator(str.strip),
    Field(min_length=1, max_length=MAX_CHARACTERS),
    AfterValidator(_evaluable),
]
LabelName = Annotated[f.Text, AfterValidator(_label_name)]
LabelValue = Annotated[f.Text, Field(min_length=1, max_length=LABEL_VALUE_MAX_CHARACTERS), AfterValidator(_plain)]
