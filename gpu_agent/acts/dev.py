"""Sleep, pause and the prefix cache of vLLM, behind its dev mode. What is so already is done.

Source: vLLM 0.32. A paused engine says that it sleeps, a sleeping one that it is paused: its metrics tell which. To
resume one that sleeps would run it without its weights, and to wake one that is paused would resume it.
"""

from __future__ import annotations

import msgspec

from gpu_agent.acts.calls import EngineCalls
from gpu_agent.acts.outcome import NotDone, failed, refused
from gpu_agent.acts.tools import EngineWork, number
from wire.acts import Pause, Sleep


class _Sleeping(msgspec.Struct):
    is_sleeping: bool


class _Paused(msgspec.Struct):
    is_paused: bool


class _Reset(msgspec.Struct):
    success: bool


async def sleep(work: EngineWork, calls: EngineCalls, request: Sleep) -> str:
    if await _asleep(work, calls):
        return "it sleeps already"
    await calls.must("/sleep", query={"level": str(request.level)})
    if not await _says_asleep(calls):
        raise failed("engine_refused", "/sleep answered well, yet /is_sleeping says no")
    return f"asleep, level {request.level}"


async def wake(work: EngineWork, calls: EngineCalls) -> str:
    if not await _asleep(work, calls):
        return "it is awake already"
    await calls.must("/wake_up")
    if await _asleep(work, calls):
        raise failed("engine_refused", "/wake_up answered well, yet it still sleeps")
    return "awake"


async def pause(calls: EngineCalls, request: Pause) -> str:
    if await _paused(calls):
        return "it is paused already"
    await calls.must("/pause", query={"mode": request.mode})
    if not await _paused(calls):
        raise failed("engine_refused", "/pause answered well, yet /is_paused says no")
    return f"paused, mode {request.mode}"


async def resume(work: EngineWork, calls: EngineCalls) -> str:
    if not await _paused(calls):
        return "it is not paused"
    if await _asleep(work, calls):
        raise refused("asleep", "it sleeps, and would run without its weights; wake it")
    await calls.must("/resume")
    if await _paused(calls):
        raise failed("engine_refused", "/resume answered well, yet /is_paused says yes")
    return "resumed"


async def reset_prefix_cache(calls: EngineCalls) -> str:
    # Asked for the refusal by name.
    await _says_asleep(calls)
    answer = await calls.must("/reset_prefix_cache")
    try:
        done = msgspec.json.decode(answer.body, type=_Reset).success
    except msgspec.MsgspecError:
        # Older versions answer nothing.
        done = True
    if not done:
        raise failed("engine_refused", "it holds blocks of requests that run; ask again when none does")
    return "the prefix cache is empty"


async def _asleep(work: EngineWork, calls: EngineCalls) -> bool:
    said = await _says_asleep(calls)
    awake = number(await work.look(), "awake") if said else None
    return said if awake is None else not awake


async def _says_asleep(calls: EngineCalls) -> bool:
    return (await calls.read("/is_sleeping", _Sleeping, absent=_dev_mode_off("/is_sleeping"))).is_sleeping


async def _paused(calls: EngineCalls) -> bool:
    return (await calls.read("/is_paused", _Paused, absent=_dev_mode_off("/is_paused"))).is_paused


def _dev_mode_off(path: str) -> NotDone:
    return refused("dev_mode_off", f"there is no {path}: it needs VLLM_SERVER_DEV_MODE=1, and a version that knows it")
