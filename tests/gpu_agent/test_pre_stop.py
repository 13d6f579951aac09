"""How long an engine counts as leaving that somebody on its node is about to end."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_agent.pre_stop import PreStop
from wire.messages import EngineReport
from wire.snapshot import NodeEngine

ENGINE = NodeEngine("http://127.0.0.1:1", "vllm", "short", "llama", cordoned=True)
FIRST, NEXT = 1_000, 2_000


async def drain(name: str, limit_seconds: int) -> str:
    return ""


def up(started_at_ms: int) -> EngineReport:
    return EngineReport("e1", "up", started_at_ms=started_at_ms)


@pytest.mark.parametrize("looked_before", [True, False])
async def test_it_is_back_when_another_process_answers_also_where_the_agent_had_not_looked_yet(looked_before):
    seen: dict[str, Any] = {"e1": up(FIRST)} if looked_before else {}
    changes: list[None] = []
    watched = PreStop(lambda: {"e1": ENGINE}, lambda: seen, drain, lambda: changes.append(None))
    assert await watched.empty("e1", 600) == ""
    assert watched.is_leaving("e1")
    for told in (up(FIRST), EngineReport("e1", "down")):
        seen["e1"] = told
        assert watched.is_leaving("e1")
    seen["e1"] = up(NEXT)
    assert not watched.is_leaving("e1")
