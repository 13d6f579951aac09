"""What it costs an engine to see a schema for the first time: the request waits until its grammar is compiled."""

from __future__ import annotations

_MAX_COMPILED = 10_000


class Grammars:
    """The schemas that this engine has compiled since its start. Each takes `compile_seconds`, whatever it is."""

    def __init__(self, compile_seconds: float) -> None:
        self.compile_seconds = compile_seconds
        self._ready_at: dict[bytes, float] = {}

    def take(self, compile_seconds: float) -> None:
        """From now on each takes so long. Where that is another time than before, nothing is compiled yet."""
        if compile_seconds != self.compile_seconds:
            self.compile_seconds = compile_seconds
            self._ready_at.clear()

    def wait_seconds(self, schema: bytes, now: float) -> float:
        """How long a request with this schema waits; empty: it has none. All that come meanwhile wait for one."""
        if not schema or not self.compile_seconds:
            return 0.0
        ready_at = self._ready_at.get(schema)
        if ready_at is None:
            ready_at = self._ready_at[schema] = now + self.compile_seconds
            if len(self._ready_at) > _MAX_COMPILED:
                del self._ready_at[next(iter(self._ready_at))]
        return max(0.0, ready_at - now)
