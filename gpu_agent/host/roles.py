"""What the processes of an engine do, by the names that they have or give themselves.

The names are the kernel's: 15 bytes at most. Sources: vLLM 0.32 vllm/utils/system_utils.py (`VLLM::EngineCore_DP0`),
SGLang `sglang::scheduler_TP0`, Triton's python backend, TGI's launcher, router and shards, Ollama's runner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# `api` takes requests, `core` decides what the GPUs do next, `worker` is every other process of the engine.
Role = Literal["api", "core", "worker"]


@dataclass(frozen=True)
class Names:
    """Parts of names. `launchers`: a parent of such a name starts the engine's other processes beside the listener."""

    core: tuple[str, ...] = ()
    launchers: tuple[str, ...] = ()


# The prefix before vLLM's "::" is a setting of its own.
_VLLM_CORE = "::EngineC"
_API, _TITLE = "::APIServ", "::"
NAMES = {
    "vllm": Names(core=(_VLLM_CORE,)),
    "sglang": Names(core=("sglang::schedul",)),
    # Launcher, router and shards begin alike, and are cut off where they differ; the router listens.
    "tgi": Names(core=("text-generation",), launchers=("text-generation",)),
    "trtllm": Names(launchers=("mpirun", "mpiexec", "orted", "prted")),
    "triton": Names(core=(_VLLM_CORE,)),
    "ollama": Names(core=("ollama",)),
}
# They listen for a container whose processes are elsewhere.
FORWARDERS = frozenset({"docker-proxy", "rootlessport", "rootlesskit", "slirp4netns", "pasta", "pasta.avx2"})

# They hold the socket of a service that is started when someone connects, and are the parents of all others.
MANAGERS = frozenset({"systemd", "init"})


def role_of(kind: str, name: str, *, first: bool, listens: bool) -> Role:
    """`first`: it is the first of those that hold the listening socket, `listens`: it holds it.

    Engine cores and workers that were forked off hold it as well, and are told by the titles that they gave themselves.
    """
    if first or _API in name:
        return "api"
    if any(part in name for part in NAMES.get(kind, Names()).core):
        return "core"
    return "api" if listens and _TITLE not in name else "worker"


def launches(kind: str, name: str) -> bool:
    return any(part in name for part in NAMES.get(kind, Names()).launchers)
