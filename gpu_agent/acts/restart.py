"""Restart an engine, with other arguments where they are given, and wait until it serves."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from gpu_agent.acts.config_file import Value, read_config, with_arguments, write_config
from gpu_agent.acts.outcome import NotDone, Reason, failed, refused
from gpu_agent.acts.serving import STARTED, command_problem, hindrance_of, wait_until_it_serves
from gpu_agent.acts.tools import EngineWork, number
from gpu_agent.engines.look import Look
from wire.acts import Restart

T = TypeVar("T")
_SHOWN_CHARACTERS = 200
_CAPACITY = "kv_cache_capacity_tokens"


async def restart(work: EngineWork, request: Restart) -> str:
    """What it serves with now. Raises: NotDone."""
    return await _Restart(work, request).run()


class _Restart:
    """One restart. A command is started once, whatever happens to the agent, which then goes on by waiting.

    `stage` of what is kept: `file`, a new one is to be written; `command`, the restart was begun; `failed`, the former
    file is to be written; `back`, the restart with it was begun.
    """

    def __init__(self, work: EngineWork, request: Restart) -> None:
        self._work, self._request = work, request
        self._kept: dict[str, str | int] = dict(work.kept)

    async def run(self) -> str:
        if "stage" not in self._kept:
            await self._keep(await self._prepared())
        if self._kept["stage"] != "file":
            self._work.tools.expect_restart(self._work.name, self._request.limit_seconds)
        if self._kept["stage"] in ("file", "command"):
            problem = await self._with_new_file()
            if problem is None:
                return self._said(await self._work.look())
            if "former" not in self._kept:
                raise problem
            await self._give_up(problem)
        raise await self._with_former_file()

    async def _give_up(self, problem: NotDone) -> None:
        """On disk before the former file is back: from here on whatever serves is not what was asked for."""
        try:
            await self._keep({"stage": "failed", "reason": problem.reason, "problem": problem.detail})
        except NotDone as unwritten:
            # A second restart that is not written down could become a third.
            await self._write("former")
            why = f"{unwritten.detail}; the former file is back, without a restart; what went wrong: {problem.detail}"
            raise failed("journal", why) from problem

    async def _keep(self, more: Mapping[str, str | int]) -> None:
        self._kept |= more
        await self._work.keep(self._kept)

    async def _prepared(self) -> dict[str, str | int]:
        """All that must be known of the engine before it is changed. Raises: NotDone."""
        found: dict[str, str | int] = {"stage": "file"}
        if arguments := self._request.arguments:
            file = _checked_file(self._work, arguments)
            former = await self._on_disk(lambda: read_config(file))
            changed, before = with_arguments(former, arguments)
            found |= {"file": file, "former": former, "changed": changed, "before": _shown(arguments, before)}
        look = await self._work.look()
        if (capacity := number(look, _CAPACITY)) is not None:
            found["capacity_tokens"] = int(capacity)
        if (started := number(look, STARTED)) is not None:
            found["started"] = str(started)
        return found

    async def _with_new_file(self) -> NotDone | None:
        """Why it does not serve."""
        if self._kept["stage"] == "file":
            if "changed" in self._kept:
                await self._write("changed")
            if problem := await self._run_command("command"):
                return problem
        return await self._wait_until_it_serves()

    async def _with_former_file(self) -> NotDone:
        """What is told in the end."""
        reason: Reason = "command_failed" if self._kept["reason"] == "command_failed" else "did_not_serve"
        now = await self._went_back()
        return failed(reason, f"{now}; what went wrong: {self._kept['problem']}")

    async def _went_back(self) -> str:
        again = None
        if self._kept["stage"] != "back":
            try:
                await self._write("former")
            except NotDone as error:
                return f"the former file could not be put back: {error.detail}"
            again = await self._run_command("back")
        if again is None:
            again = await self._wait_until_it_serves()
        elif not await self._hindrance():
            # A command that may not be run leaves the engine as it was.
            again = None
        how = f"it does not serve with them either: {again.detail}" if again else "it serves with them"
        return f"the former arguments are back, and {how}"

    async def _write(self, which: str) -> None:
        file, text = str(self._kept["file"]), str(self._kept[which])
        # The agent may have been started with another policy since.
        if file != self._work.policy.config_file:
            raise failed("config_file", f"{file} is no longer the configuration file that this node's policy names")
        await self._on_disk(lambda: write_config(file, text))

    async def _on_disk(self, call: Callable[[], T]) -> T:
        return await self._work.tools.on_disk(self._work.name, call)

    async def _run_command(self, stage: str) -> NotDone | None:
        """Why the command did not do."""
        try:
            await self._keep({"stage": stage, "begun_ms": time.time_ns() // 1_000_000})
        except NotDone as problem:
            return problem
        limit_seconds = self._request.limit_seconds
        self._work.tools.expect_restart(self._work.name, limit_seconds)
        return await command_problem(self._work.policy.restart_command, limit_seconds, "the restart command")

    async def _wait_until_it_serves(self) -> NotDone | None:
        """Why it does not serve."""
        return await wait_until_it_serves(self._hindrance, self._request.limit_seconds, "restart")

    async def _hindrance(self) -> str:
        """What it lacks to serve; empty: nothing."""
        former_start = self._kept.get("started") if self._kept["stage"] == "command" else None
        return await hindrance_of(self._work, None if former_start is None else str(former_start))

    def _said(self, look: Look) -> str:
        parts = []
        capacity, before = number(look, _CAPACITY), self._kept.get("capacity_tokens")
        if capacity is not None:
            parts.append(f"KV capacity {f'{before:,} → ' if before is not None else ''}{int(capacity):,} tokens")
        took_seconds = max(0, time.time_ns() // 1_000_000 - int(self._kept["begun_ms"])) / 1000
        parts.append(f"served after {took_seconds:.0f} s")
        if "before" in self._kept:
            parts.append(f"before: {self._kept['before']}")
        return "; ".join(parts)


def _checked_file(work: EngineWork, arguments: Mapping[str, Value]) -> str:
    """The configuration file in which they are to be changed. Raises: NotDone."""
    if work.engine.kind != "vllm":
        raise refused("bad_arguments", f"arguments are for vllm; the engine is {work.engine.kind}")
    if work.policy.config_file is None:
        raise refused("config_file", "this node's policy names no config_file for the engine")
    if forbidden := sorted(arguments.keys() - set(work.policy.arguments)):
        allowed = ", ".join(work.policy.arguments) or "none"
        raise refused(
            "argument_not_allowed", f"{', '.join(forbidden)} may not be set here; this node's policy allows {allowed}"
        )
    return work.policy.config_file


def _shown(arguments: Mapping[str, Value], before: Mapping[str, str]) -> str:
    return ", ".join(
        f"{key}={before[key][:_SHOWN_CHARACTERS]}" if key in before else f"{key} not set" for key in arguments
    )
