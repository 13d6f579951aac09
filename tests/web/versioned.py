"""Versions of a model, for tests of pages."""

from __future__ import annotations

from controlplane.core.changes import UnitOfWork
from controlplane.fleet.services import MODELS, POOLS, versions
from tests.web.conftest import write


def passive_version(family: str) -> int:
    """The id of the first of two versions of the family, whose models are named after it; each has a pool."""

    def publish(unit: UnitOfWork) -> int:
        ids = []
        for version in ("v1", "v2"):
            model = f"{family}-{version}"
            MODELS.create(unit, model, {"max_context_tokens": 8192})
            POOLS.create(unit, model, {"model": model})
            ids.append(versions.publish(unit, family, version, model).pk)
        return ids[0]

    first: int = write(publish)
    return first
