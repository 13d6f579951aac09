"""Acts and what does them, without an agent around."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpu_agent.acts.doing import do_on_engine
from gpu_agent.acts.tools import EngineWork, Tools
from gpu_agent.engines.keys import EngineKeys
from gpu_agent.engines.look import Look, Wanted, look_at
from gpu_agent.engines.pages import EnginePages
from gpu_agent.policy import EnginePolicy, NodePolicy
from wire.acts import Request
from wire.messages import EngineReport
from wire.snapshot import Act, NodeEngine

DEADLINE_SECONDS = 20
NO_POLICY = EnginePolicy()
PAST, FUTURE = 1_000_000_000_000, 4_000_000_000_000


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.001)


def act(action: str, engine: str | None = "e1", order: int = 1, expires_at_ms: int = FUTURE, **arguments: Any) -> Act:
    subject = {} if engine is None else {"engine": engine}
    return Act(action, order, PAST, expires_at_ms, arguments=arguments, **subject)


def node_engine(url: str = "http://127.0.0.1:1", kind: Any = "vllm", **more: Any) -> NodeEngine:
    return NodeEngine(url, kind, "short", "llama", **more)


@dataclass
class FakeGpus:
    """Remembers what it was asked."""

    asked: list[Any] = field(default_factory=list)
    error: Exception | None = None

    async def release(self, for_seconds: float) -> None:
        self.asked.append(for_seconds)
        if self.error is not None:
            raise self.error

    async def take_up(self) -> None:
        self.asked.append("take up")


async def no_look(name: str, engine: NodeEngine) -> Look:
    return Look(EngineReport(name, "down", error="nobody looks"), PAST)


def tools(**changed: Any) -> Tools:
    parts: dict[str, Any] = {
        "look": no_look,
        "expect_restart": lambda name, within_seconds: None,
        "gpus": FakeGpus(),
        "keys": EngineKeys(NodePolicy()),
        "act_seconds": 20,
        "files": None,
    }
    return Tools(**(parts | changed))


@asynccontextmanager
async def real_work(engine: NodeEngine, policy: EnginePolicy = NO_POLICY, **changed: Any):
    """Work on the engine e1, which is looked at as the agent does. `kept` are all states that were kept."""
    node_policy = NodePolicy(engines={"e1": policy})
    pages, keys = EnginePages(timeout_seconds=5, limit_bytes=2**20), EngineKeys(node_policy)
    wanted = Wanted(policy=node_policy)
    kept: list[dict[str, Any]] = []

    async def keep(state):
        kept.append(dict(state))

    try:
        used = tools(look=lambda name, each: look_at(pages, name, each, wanted), keys=keys, **changed)
        yield Work(EngineWork("e1", engine, policy, {}, keep, used), kept)
    finally:
        await pages.close()


@dataclass
class Work:
    work: EngineWork
    kept: list[dict[str, Any]]

    async def do(self, request: Request) -> str:
        return await do_on_engine(request, self.work)

    def going_on(self, kept: dict[str, Any]) -> Work:
        """As after a restart of the agent."""
        return Work(replace(self.work, kept=kept), self.kept)


async def no_keep(state: Any) -> None:
    """Of an act that keeps nothing."""


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path
