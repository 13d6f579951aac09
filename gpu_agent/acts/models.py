"""Models of a Triton, by KServe v2's model repository extension."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

from gpu_agent.acts.calls import EngineCalls
from gpu_agent.acts.outcome import failed
from wire.acts import LoadModel, UnloadModel

_POLL_SECONDS = 0.5


async def load(calls: EngineCalls, request: LoadModel) -> str:
    """Waits until it serves; one that is loaded is loaded anew."""
    await calls.must(f"/v2/repository/models/{_in_path(request.model)}/load", body={})
    await _until_ready(calls, request.model, ready=True)
    return f"{request.model} is loaded and ready"


async def unload(calls: EngineCalls, request: UnloadModel) -> str:
    """Waits until it no longer serves: Triton lets its requests end first."""
    path = f"/v2/repository/models/{_in_path(request.model)}/unload"
    answer = await calls.post(path, body={})
    if answer.status != 200:
        if not await _ready(calls, request.model):
            return f"{request.model} is not loaded"
        raise failed("engine_refused", f"{path} answered {answer.said}")
    await _until_ready(calls, request.model, ready=False)
    return f"{request.model} is unloaded"


async def _until_ready(calls: EngineCalls, model: str, *, ready: bool) -> None:
    while True:
        if await _ready(calls, model) == ready:
            return
        await asyncio.sleep(_POLL_SECONDS)


async def _ready(calls: EngineCalls, model: str) -> bool:
    return (await calls.get(f"/v2/models/{_in_path(model)}/ready")).status == 200


def _in_path(model: str) -> str:
    return quote(model, safe="")
