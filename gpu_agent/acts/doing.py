"""Every action, and what does it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from gpu_agent.acts import dev, lora, models
from gpu_agent.acts.calls import EngineCalls, engine_calls
from gpu_agent.acts.drain import drain
from gpu_agent.acts.model_files import check_model, fetch_model
from gpu_agent.acts.outcome import failed, refused
from gpu_agent.acts.repair import reboot, reset_gpu
from gpu_agent.acts.restart import restart
from gpu_agent.acts.start_stop import start, stop
from gpu_agent.acts.tools import EngineWork, NodeWork
from gpu_agent.acts.warm_up import warm_up
from gpu_agent.engines.addresses import ForeignUrl, check_url
from gpu_agent.nvml.release import NotReleased
from wire import acts


async def do_on_engine(request: acts.Request, work: EngineWork) -> str:
    """What was done, in words. Raises: NotDone."""
    try:
        await check_url(work.engine.url, work.policy.url)
    except ForeignUrl as error:
        # One that was under way when the agent ended has changed something already.
        raise (failed if work.kept else refused)("url_not_allowed", str(error)) from error
    match request:
        case acts.Restart():
            return await restart(work, request)
        case acts.Drain():
            return await drain(work, request)
        case acts.Start():
            return await start(work, request)
        case acts.Stop():
            return await stop(work, request)
        case acts.WarmUp():
            return await warm_up(work, request)
    async with _within_limit(work) as calls:
        match request:
            case acts.Sleep():
                return await dev.sleep(work, calls, request)
            case acts.Wake():
                return await dev.wake(work, calls)
            case acts.Pause():
                return await dev.pause(calls, request)
            case acts.Resume():
                return await dev.resume(work, calls)
            case acts.ResetPrefixCache():
                return await dev.reset_prefix_cache(calls)
            case acts.LoadLora():
                return await lora.load(work, calls, request)
            case acts.UnloadLora():
                return await lora.unload(calls, request)
            case acts.LoadModel():
                return await models.load(calls, request)
            case acts.UnloadModel():
                return await models.unload(calls, request)
    raise TypeError(f"{type(request).__name__} is not for an engine")


async def do_on_node(request: acts.Request, work: NodeWork) -> str:
    """What was done, in words. Raises: NotDone."""
    match request:
        case acts.FetchModel():
            return await fetch_model(work, request)
        case acts.CheckModel():
            return await check_model(work, request)
        case acts.ReleaseGpus():
            until = datetime.now(UTC) + timedelta(seconds=request.limit_seconds)
            try:
                await work.tools.gpus.release(request.limit_seconds)
            except NotReleased as error:
                raise failed("gpus_in_use", str(error)) from error
            return f"NVML is closed until {until:%Y-%m-%d %H:%M:%S} UTC, unless it is taken up before"
        case acts.TakeUpGpus():
            await work.tools.gpus.take_up()
            return "NVML is opened again"
        case acts.ResetGpu():
            return await reset_gpu(work, request)
        case acts.Reboot():
            return await reboot(work, request)
    raise TypeError(f"{type(request).__name__} is not for a node")


@asynccontextmanager
async def _within_limit(work: EngineWork) -> AsyncIterator[EngineCalls]:
    limit_seconds = work.tools.act_seconds
    try:
        async with asyncio.timeout(limit_seconds), engine_calls(work) as calls:
            yield calls
    except TimeoutError as error:
        raise failed("timeout", f"not done after {limit_seconds:g} s; the engine may still do it") from error
