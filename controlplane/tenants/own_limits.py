"""What people of some tenants may change of their tenant's own entry: they may lower its limits, and no more."""

from __future__ import annotations

from controlplane.core.errors import Forbidden
from wire.canonical import Document
from wire.problems import Problem, pointer

# A lower number is less; null is no limit.
LOWERED_BY_THEIR_OWN = (
    "tpm_limit", "rpm_limit", "max_parallel_requests", "max_tokens_cap", "n_cap", "daily_token_budget",
)  # fmt: skip


def refuse_raises(before: Document, after: Document) -> None:
    """Raise Forbidden (`scope_raise`) where the public form of the tenant would differ in anything else."""
    problems = [
        Problem(pointer("/", field), "scope_raise", _right(field, before.get(field)))
        for field in sorted({*before, *after})
        if before.get(field) != after.get(field) and not _lowers(field, before.get(field), after.get(field))
    ]
    if problems:
        detail = "people of a tenant may lower its limits; ask an operator of the whole fleet for more"
        raise Forbidden(detail, problems, code="scope_raise")


def _lowers(field: str, before: object, after: object) -> bool:
    if field not in LOWERED_BY_THEIR_OWN or not isinstance(after, int):
        return False
    return before is None or (isinstance(before, int) and after < before)


def _right(field: str, before: object) -> str:
    if field not in LOWERED_BY_THEIR_OWN:
        return "only an operator of the whole fleet may change this"
    return "only an operator of the whole fleet may raise this" + ("" if before is None else f"; give {before} or less")
