"""What an engine says it used, and whether it failed, read from its answer with as little parsing as that needs."""

from __future__ import annotations

from gateway.usage.counts import NotAnAnswer, Usage, usage_of_answer
from gateway.usage.failures import GIVEN_UP, failure_in, given_up
from gateway.usage.stream import MAX_EVENT_BYTES, StreamReader, event_data

__all__ = [
    "GIVEN_UP",
    "MAX_EVENT_BYTES",
    "NotAnAnswer",
    "StreamReader",
    "Usage",
    "event_data",
    "failure_in",
    "given_up",
    "usage_of_answer",
]
