"""LoRA adapters of a vLLM that allows them to be changed while it runs."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gpu_agent.acts.calls import EngineCalls
from gpu_agent.acts.outcome import failed, refused
from gpu_agent.acts.tools import EngineWork
from wire.acts import LoadLora, UnloadLora


class _Card(msgspec.Struct):
    id: str
    root: str | None = None
    parent: str | None = None


class _Models(msgspec.Struct):
    data: list[_Card]


async def load(work: EngineWork, calls: EngineCalls, request: LoadLora) -> str:
    folder = work.policy.lora_folder
    path = await work.tools.on_disk(work.name, lambda: _resolved(folder, request.path))
    if await _loaded_from(calls, request.adapter) == str(path):
        return f"{request.adapter} is loaded from {path} already"
    body = {"lora_name": request.adapter, "lora_path": str(path)}
    await _post(calls, "/v1/load_lora_adapter", body)
    if await _loaded_from(calls, request.adapter) is None:
        raise failed("engine_refused", f"it answered well, yet /v1/models does not name {request.adapter}")
    return f"{request.adapter} is loaded from {path}"


async def unload(calls: EngineCalls, request: UnloadLora) -> str:
    if await _loaded_from(calls, request.adapter) is None:
        return f"{request.adapter} is not loaded"
    await _post(calls, "/v1/unload_lora_adapter", {"lora_name": request.adapter})
    return f"{request.adapter} is unloaded"


async def _post(calls: EngineCalls, path: str, body: dict[str, str]) -> None:
    answer = await calls.post(path, body=body)
    # An adapter that cannot be found is 404, too; only a path that is there knows that it takes no GET.
    if answer.status == 404 and (await calls.get(path)).status == 404:
        raise refused("lora_updating_off", "the engine needs VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, and --enable-lora")
    if answer.status != 200:
        raise failed("engine_refused", f"{path} answered {answer.said}")


async def _loaded_from(calls: EngineCalls, adapter: str) -> str | None:
    """The folder of a loaded adapter, which vLLM calls its root; the model itself has no parent."""
    models = await calls.read("/v1/models", _Models)
    return next((card.root or "" for card in models.data if card.id == adapter and card.parent is not None), None)


def _resolved(folder: str | None, path: str) -> Path:
    """The real path of an adapter. Raises: NotDone unless it is below the folder of the policy."""
    if folder is None:
        raise refused("path_not_allowed", "this node's policy names no lora_folder for the engine")
    try:
        inner, outer = Path(path).resolve(strict=True), Path(folder).resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise refused("path_not_allowed", f"{path} cannot be found: {error}") from error
    if outer not in inner.parents:
        raise refused("path_not_allowed", f"{path} is not below {folder}, which this node's policy names")
    return inner
