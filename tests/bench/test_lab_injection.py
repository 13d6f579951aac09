"""What the lab does to its fleet over and over, until it is told to stop."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from bench.support.lab.injection import Injection
from bench.support.lab.pathology import Pathology


def test_only_an_engine_that_serves_is_ended_by_a_deploy() -> None:
    ended: list[str] = []
    looks = iter([False, True, False, True])
    injection: Any = None

    def serves(_: str) -> bool:
        if (answer := next(looks, None)) is None:
            injection._no_deploys.set()
        return bool(answer)

    lab: Any = SimpleNamespace(engines=SimpleNamespace(serves=serves, terminate=ended.append))
    injection = Injection(lab, SimpleNamespace())  # type: ignore[arg-type]
    injection._deploy(Pathology("deploy_and_probes", "engine/a", deploys=("a", "b"), deploy_seconds=0.001))
    assert ended == ["b", "b"]
