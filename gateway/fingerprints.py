"""Requests like earlier ones: retries, questions that come again, prompts that an engine's prefix cache cannot help.

What is counted here is what detectors look at; nothing is refused for it. Only hashes are kept, and only in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.admission import tenant_key
from policy.fingerprints import SeenLately, SeenWithin

if TYPE_CHECKING:
    from gateway.exchange import Exchange
    from gateway.pattern_metrics import PatternMetrics

_MINUTE_MS = 60_000
_DAY_MS = 86_400_000
# At 1,200 requests a second a minute has 72,000 of them; a retry is then missed in one case of eight on average.
_RETRY_SLOTS = 2**18
# 48 different prompts a second for half a day; 8 MiB.
_PROMPTS = 2**21
# As long as a prefix may well stay in an engine's cache.
_PREFIX_MS = 600_000
_PREFIX_SLOTS = 2**16
# One block of KV cache is 16 tokens in vLLM, of about 4 characters each. Four blocks that repeat are worth having.
_HEAD_CHARACTERS = 64
_STRETCH_CHARACTERS = 256
_TEXTS_LOOKED_AT = 16


class Fingerprints:
    """Counts into `metrics` what each request that was given a pool repeats."""

    def __init__(self, metrics: PatternMetrics) -> None:
        self._metrics = metrics
        self._requests = SeenLately(_RETRY_SLOTS, _MINUTE_MS)
        self._prompts = SeenWithin(_PROMPTS, _DAY_MS)
        self._heads = SeenLately(_PREFIX_SLOTS, _PREFIX_MS)
        self._stretches = SeenLately(_PREFIX_SLOTS, _PREFIX_MS)

    def arrived(self, x: Exchange) -> None:
        """A request and its pool. The same body of the same key within a minute is a retry; it is no duplicate too."""
        now_ms, pool = x.gateway.now_ms(), x.route.pools[0]
        retry = self._requests.seen(hash((tenant_key(x), x.body_hash)), now_ms)
        duplicate = self._prompts.seen(_prompt(x), now_ms)
        if retry or duplicate:
            kind = "retry" if retry else "duplicate"
            self._metrics.repeated(pool, x.tenant_name, kind)
        # Notes are shown to the tenant's people. Who else has asked the same, or begins as others do, is counted alone.
        if retry:
            x.note(retry=1)
        if self._is_hostile(x, now_ms):
            self._metrics.cache_hostile(pool, x.tenant_name)

    def _is_hostile(self, x: Exchange, now_ms: int) -> bool:
        """Whether the prompt begins as none did lately, and goes on with what has been seen.

        Prefixes match from the first token on: a name or a date at the beginning keeps all that follows out of the
        cache. Stretches are taken from the ends of texts, where a beginning of another length does not move them.
        """
        # Tools are counted last, but templates put them first.
        texts = x.ask.texts[: len(x.ask.texts) - bool(x.ask.tools)][:_TEXTS_LOOKED_AT]
        known = self._heads.seen(hash((x.model_name, _head(texts))), now_ms)
        again = [
            self._stretches.seen(hash((x.model_name, text[-_STRETCH_CHARACTERS:])), now_ms)
            for text in texts
            if len(text) >= _HEAD_CHARACTERS + _STRETCH_CHARACTERS
        ]
        return not known and any(again)


def _head(texts: Sequence[str]) -> str:
    return "".join([text[:_HEAD_CHARACTERS] for text in texts[:4]])[:_HEAD_CHARACTERS]


def _prompt(x: Exchange) -> int:
    """The model and all that it is asked: what stands beside the prompt itself comes first among the texts."""
    return hash((x.model_name, x.ask.raw(x.ask.api.text_field), x.ask.texts[0] if x.ask.texts else ""))
