"""Is an engine hung: has it requests running while nothing of its work moves? Pure.

A server whose core hangs answers its health page and shows the core's last numbers, so that only their standing still
tells of it. One that preempts its requests over and over and makes no token of them is hung as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from wire.engine_pages.numbers import Reading

# What moves while a request runs, not only when it ends. Where none is, as with TensorRT-LLM, a long answer would look
# like a hang.
_STEPS = frozenset({"iterations_total", "inter_token_latency_seconds_count"})
_TOKENS = frozenset({"inter_token_latency_seconds_count", "prompt_tokens_total", "generation_tokens_total"})
# A prefill in chunks takes KV cache before it makes its first token.
_WORK = _TOKENS | _STEPS | {"kv_cache_usage_ratio"}
_RUNNING, _PREEMPTIONS = "requests_running", "preemptions_total"


@dataclass(frozen=True)
class Standstill:
    """Work that has not moved since a look, while requests ran at each of `looks`. `numbers`: those of the newest.

    The time of the first: `since_seconds` of a clock that never jumps, `since_ms` Unix time, to be said.
    """

    numbers: Mapping[str, float]
    since_seconds: float
    since_ms: int
    looks: int = 1

    @property
    def running_requests(self) -> int:
        return int(self.numbers[_RUNNING])

    def lasted_seconds(self, now_seconds: float) -> float:
        return now_seconds - self.since_seconds


def can_tell(numbers: Iterable[Reading]) -> bool:
    """Whether these numbers of a metrics page would show a hang."""
    names = {reading.name for reading in numbers}
    return _RUNNING in names and not names.isdisjoint(_STEPS)


def apart(numbers: list[Reading], ranks: Mapping[str, list[Reading]]) -> Mapping[str, list[Reading]]:
    """What can hang by itself: each rank, or, where one of them cannot tell, the engine as a whole, by the name ""."""
    if ranks and all(map(can_tell, ranks.values())):
        return ranks
    return {"": numbers} if can_tell(numbers) else {}


def standstill(
    before: Standstill | None, numbers: Iterable[Reading], now_seconds: float, now_ms: int
) -> Standstill | None:
    """What stands still at a look whose numbers can tell; None where nothing runs.

    Any change of the work is life, a counter's reset too: the engine was started again.
    """
    wanted = _WORK | {_RUNNING, _PREEMPTIONS}
    now = {reading.name: reading.value for reading in numbers if reading.name in wanted}
    if int(now[_RUNNING]) == 0:
        return None
    if before is None or _worked(before.numbers, now):
        return Standstill(now, now_seconds, now_ms)
    return replace(before, numbers=now, looks=before.looks + 1)


def _worked(before: Mapping[str, float], now: Mapping[str, float]) -> bool:
    moved = {name for name in _WORK if before.get(name) != now.get(name)}
    if now.get(_PREEMPTIONS, 0) > before.get(_PREEMPTIONS, 0):
        # Steps and KV cache move while requests only throw each other out.
        moved &= _TOKENS
    return bool(moved)
