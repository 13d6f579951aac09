"""Which answers may be kept: whole ones, that nothing outside the request has cut short."""

from __future__ import annotations

import re

# JSON escapes quotes in text, so these bytes are a key and its value.
_FINISHED = re.compile(rb'"(?:finish_reason|stop_reason)"\s*:\s*"([a-z_]+)"')
# Engines name some calls' end as that of any text. Many write an empty list where nothing is called.
_CALLS = re.compile(rb'"tool_calls"\s*:\s*\[\s*\{|"function_call"\s*:\s*\{|"type"\s*:\s*"tool_use"')
_WHOLE = frozenset((b"stop", b"end_turn", b"stop_sequence"))
_CUT = frozenset((b"length", b"max_tokens"))
# Endpoints whose answers are computed, not generated: they have no end to be told of.
_COMPUTED = frozenset(("embeddings", "rerank"))


def may_be_kept(endpoint: str, body: bytes, *, stream: bool, length_was_asked_for: bool) -> bool:
    """Whether an answer is one to the request alone.

    One that says nowhere how it ended, that a filter or the engine ended, or that calls tools is not: to call a tool
    again is not the gateway's to decide. One that ended at the output limit is only where the client itself asked for
    that length.
    """
    if endpoint in _COMPUTED:
        return not stream
    if stream and not _is_complete(endpoint, body):
        return False
    if _CALLS.search(body):
        return False
    reasons = set(_FINISHED.findall(body))
    return bool(reasons) and reasons <= (_WHOLE | _CUT if length_was_asked_for else _WHOLE)


def _is_complete(endpoint: str, body: bytes) -> bool:
    """A stream that its engine broke off has no last event."""
    tail = body[-200:].rstrip()
    return b"message_stop" in tail if endpoint == "messages" else tail.endswith(b"[DONE]")
