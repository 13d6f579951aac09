"""In what unit the values of an expression are, as far as the names of its series say."""

from __future__ import annotations

from typing import Any

import promql_parser as ast

from controlplane.telemetry.promql.errors import QueryError
from controlplane.telemetry.promql.grammar import parse

_SUFFIXES = {"_time_seconds": "", "_seconds": "seconds", "_ratio": "ratio", "_bytes": "bytes"}
_DCGM = {
    "DCGM_FI_DEV_GPU_TEMP": "celsius",
    "DCGM_FI_DEV_MEMORY_TEMP": "celsius",
    "DCGM_FI_DEV_POWER_USAGE": "watts",
}
# What keeps the unit of what it is made of.
_AGGREGATIONS = frozenset({"sum", "avg", "min", "max", "topk", "bottomk"})
_FUNCTIONS = frozenset({"avg_over_time", "min_over_time", "max_over_time", "last_over_time"})


def unit_of(expr: str) -> str:
    """As evidence of the diagnosis names units; empty: nobody knows."""
    try:
        tree: Any = parse(expr)
    except QueryError:
        return ""
    while not isinstance(tree, ast.VectorSelector):
        tree = _within(tree)
        if tree is None:
            return ""
    name = tree.name or ""
    # A moment is no length of time.
    return next((unit for suffix, unit in _SUFFIXES.items() if name.endswith(suffix)), _DCGM.get(name, ""))


def _within(tree: Any) -> Any:
    """What a part takes its unit from; None: from nothing that has one."""
    if isinstance(tree, ast.ParenExpr):
        return tree.expr
    if isinstance(tree, ast.MatrixSelector):
        return tree.vector_selector
    if isinstance(tree, ast.AggregateExpr) and str(tree.op) in _AGGREGATIONS:
        return tree.expr
    if isinstance(tree, ast.Call) and tree.func.name in _FUNCTIONS:
        return tree.args[0]
    return None
