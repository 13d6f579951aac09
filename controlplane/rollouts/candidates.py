"""Whether engines may be used at all: the rules of compatibility, and the files of their model on their nodes."""

from __future__ import annotations

from collections.abc import Sequence

from controlplane.fleet import compatibility, model_files
from controlplane.fleet.models import Engine, Pool


def in_the_way(pool: Pool, engines: Sequence[Engine]) -> list[str]:
    """What stops requests from being sent to these engines of the pool, in words; empty where nothing does."""
    found = compatibility.judge([pool.name], [engine.name for engine in engines])
    stopping = [f"{finding.rule}: {finding.message}" for finding in found if finding.stops]
    nodes = sorted({engine.node.name for engine in engines if engine.node is not None})
    return stopping + model_files.missing(pool.model, nodes)
