"""What an agent can be asked to do: each action, what it acts on, and the arguments it takes.

The control plane checks an act by this table before it is published, the agent again before it is begun.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, Struct

from wire.problems import Problem, type_problems
from wire.snapshot import Act, EngineArgument, EngineArgumentValue, FolderPath, Name, Sha256

# An hour at most: whoever waits for longer asks again.
Seconds = Annotated[int, Meta(ge=1, le=3600)]
# As much as one prompt of a warm-up may take in a slice that many acts share.
_WarmText = Annotated[str, Meta(max_length=16_384)]
# As NVML gives it; it becomes a word of a command.
GpuUuid = Annotated[str, Meta(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9-]*$(?!\n)")]
EngineModelName = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$(?!\n)")]


class Request(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of one action. `kinds`: the engines that it is for; empty: it is for the node itself."""

    kinds: ClassVar[frozenset[str]] = frozenset()


class EngineRequest(Request, frozen=True, forbid_unknown_fields=True):
    kinds: ClassVar[frozenset[str]] = frozenset({"vllm"})


class Sleep(EngineRequest, frozen=True, forbid_unknown_fields=True):
    """vLLM: give the GPU's memory back. Level 1 keeps the weights in host memory, level 2 drops them."""

    level: Literal[1, 2] = 1


class Wake(EngineRequest, frozen=True, forbid_unknown_fields=True):
    """vLLM: end a sleep."""


class Pause(EngineRequest, frozen=True, forbid_unknown_fields=True):
    """vLLM: stop generating. What runs is aborted, waited for, or kept where it stands."""

    mode: Literal["abort", "wait", "keep"] = "wait"


class Resume(EngineRequest, frozen=True, forbid_unknown_fields=True):
    """vLLM: end a pause."""


class ResetPrefixCache(EngineRequest, frozen=True, forbid_unknown_fields=True):
    """vLLM: forget cached prefixes."""


class LoadLora(EngineRequest, frozen=True, forbid_unknown_fields=True):
    """vLLM: serve an adapter of this node's disk under its own name."""

    adapter: Name
    path: FolderPath


class UnloadLora(EngineRequest, frozen=True, forbid_unknown_fields=True):
    adapter: Name


class LoadModel(EngineRequest, frozen=True, forbid_unknown_fields=True):
    """Triton: load a model of its repository, or load it anew (KServe v2)."""

    kinds: ClassVar[frozenset[str]] = frozenset({"triton"})
    model: EngineModelName


class UnloadModel(EngineRequest, frozen=True, forbid_unknown_fields=True):
    kinds: ClassVar[frozenset[str]] = frozenset({"triton"})
    model: EngineModelName


class Drain(EngineRequest, frozen=True, forbid_unknown_fields=True):
    """Wait until the engine, which is cordoned first, has no request running."""

    kinds: ClassVar[frozenset[str]] = frozenset({"vllm", "sglang", "tgi", "llamacpp", "trtllm", "triton"})
    limit_seconds: Seconds = 600


class Restart(EngineRequest, frozen=True, forbid_unknown_fields=True):
    """Restart by the command that the node's policy names, and wait until it serves.

    `arguments`, for vLLM: replaces these in its configuration file, and leaves all others in it as they are. The former
    file is put back, and the engine restarted once more, where it does not serve within the limit.
    """

    kinds: ClassVar[frozenset[str]] = frozenset({"vllm", "sglang", "tgi", "llamacpp", "trtllm", "triton", "ollama"})
    arguments: Annotated[dict[EngineArgument, EngineArgumentValue], Meta(max_length=64)] = {}
    limit_seconds: Seconds = 900


class Start(EngineRequest, frozen=True, forbid_unknown_fields=True):
    """Start an engine that does not run by the command that the node's policy names, and wait until it serves."""

    kinds: ClassVar[frozenset[str]] = Restart.kinds
    limit_seconds: Seconds = 900


class Stop(EngineRequest, frozen=True, forbid_unknown_fields=True):
    """Stop an engine that takes no work by the command of the policy, and wait until nobody listens at its port."""

    kinds: ClassVar[frozenset[str]] = Restart.kinds
    limit_seconds: Seconds = 300


class WarmUp(EngineRequest, frozen=True, forbid_unknown_fields=True):
    """Send an engine real requests before others do: its kernels, prefix cache and grammars are made then.

    `prompt`: what each asks; empty: some words of its own. `schema`: of the answer, as JSON Schema in text; empty:
    none. They are sent one after another, each for so many tokens.
    """

    kinds: ClassVar[frozenset[str]] = frozenset({"vllm", "sglang", "tgi", "llamacpp", "trtllm"})
    prompt: _WarmText = ""
    schema: _WarmText = ""
    requests: Annotated[int, Meta(ge=1, le=64)] = 4
    max_tokens: Annotated[int, Meta(ge=1, le=64)] = 8
    limit_seconds: Seconds = 300


class ModelFilesRequest(Request, frozen=True, forbid_unknown_fields=True):
    """About a model's files in one folder of the node's disk. `manifest`: the SHA-256 of one (wire.manifest)."""

    manifest: Sha256
    folder: FolderPath
    limit_seconds: Annotated[int, Meta(ge=1, le=86_400)] = 14_400


class FetchModel(ModelFilesRequest, frozen=True, forbid_unknown_fields=True):
    """Run the site's own command that fetches the files, and see that they are whole."""


class CheckModel(ModelFilesRequest, frozen=True, forbid_unknown_fields=True):
    """Read every file, and see that they are whole."""


class ReleaseGpus(Request, frozen=True, forbid_unknown_fields=True):
    """Close NVML, so that a GPU can be reset or sliced anew; it is taken up again by itself after the limit."""

    limit_seconds: Seconds = 600


class TakeUpGpus(Request, frozen=True, forbid_unknown_fields=True):
    """Open NVML again before that limit."""


class ResetGpu(Request, frozen=True, forbid_unknown_fields=True):
    """Reset one GPU by the command of the policy, NVML being closed meanwhile. Nothing may run on it."""

    gpu: GpuUuid
    limit_seconds: Seconds = 600


class Reboot(Request, frozen=True, forbid_unknown_fields=True):
    """Reboot the node by the command of the policy. Done once its agent finds itself in another boot."""

    limit_seconds: Seconds = 1800


ACTIONS: dict[str, type[Request]] = {
    "sleep": Sleep,
    "wake": Wake,
    "pause": Pause,
    "resume": Resume,
    "reset_prefix_cache": ResetPrefixCache,
    "load_lora": LoadLora,
    "unload_lora": UnloadLora,
    "load_model": LoadModel,
    "unload_model": UnloadModel,
    "drain": Drain,
    "restart": Restart,
    "start": Start,
    "stop": Stop,
    "warm_up": WarmUp,
    "fetch_model": FetchModel,
    "check_model": CheckModel,
    "release_gpus": ReleaseGpus,
    "take_up_gpus": TakeUpGpus,
    "reset_gpu": ResetGpu,
    "reboot": Reboot,
}


class ActRefused(ValueError):
    """An act that cannot be done as it is written. `problems` say where and why; the first one's rule names it."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(problem.message for problem in problems))
        self.problems = problems


def read_act(act: Act, kind: str | None) -> Request:
    """The checked request of an act. `kind`: that of its engine; None where it is for the node.

    Raises: ActRefused.
    """
    action = ACTIONS.get(act.action)
    if action is None:
        known = ", ".join(ACTIONS)
        raise ActRefused([Problem("/action", "unknown_action", f"{act.action!r} is no action; give one of {known}")])
    if bool(action.kinds) != (act.engine is not UNSET):
        needs = "needs an engine" if action.kinds else "is for a node, and takes no engine"
        raise ActRefused([Problem("/engine", "wrong_subject", f"{act.action} {needs}")])
    if action.kinds and kind not in action.kinds:
        able = ", ".join(sorted(action.kinds))
        raise ActRefused([Problem("/engine", "wrong_kind", f"{act.action} is for {able}; the engine is {kind}")])
    try:
        return msgspec.convert(act.arguments, action)
    except msgspec.ValidationError as error:
        raise ActRefused(type_problems(act.arguments, action, "/arguments")) from error
