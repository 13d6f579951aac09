"""Is an engine hung: has it requests running while nothing of its work moves? Pure.

A server whose core hangs answers its health page and shows the core's last numbers, so that only their standing still
tells of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpu_agent.engines.numbers import Reading

# What moves while a request runs, not only when it ends. Where none is, as with TGI, TensorRT-LLM and llama.cpp, a long
# answer would look like a hang.
_STEPS = frozenset({"iterations_total", "inter_token_latency_seconds_count"})
# A prefill in chunks takes KV cache before it makes its first token.
_WORK = _STEPS | {"prompt_tokens_total", "generation_tokens_total", "kv_cache_usage_ratio"}
_RUNNING = "requests_running"


@dataclass(frozen=True)
class Standstill:
    """Numbers of work that have not moved since a look, while requests ran at every look.

    The time of that look: `since_seconds` of a clock that never jumps, `since_ms` Unix time, to be said.
    """

    work: frozenset[Reading]
    running_requests: int
    since_seconds: float
    since_ms: int

    def lasted_seconds(self, now_seconds: float) -> float:
        return now_seconds - self.since_seconds


def can_tell(numbers: Iterable[Reading]) -> bool:
    """Whether these numbers of a metrics page would show a hang."""
    names = {reading.name for reading in numbers}
    return _RUNNING in names and not names.isdisjoint(_STEPS)


def standstill(
    before: Standstill | None, numbers: Iterable[Reading], now_seconds: float, now_ms: int
) -> Standstill | None:
    """What stands still at a look whose numbers can tell; None where nothing runs.

    Any change of the work is life, a counter's reset too: the engine was started again.
    """
    by_name = {reading.name: reading for reading in numbers}
    running_requests = int(by_name[_RUNNING].value)
    if running_requests == 0:
        return None
    work = frozenset(by_name[name] for name in _WORK & by_name.keys())
    if before is None or before.work != work:
        return Standstill(work, running_requests, now_seconds, now_ms)
    return replace(before, running_requests=running_requests)
