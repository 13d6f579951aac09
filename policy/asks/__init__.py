"""Request bodies of the model APIs: what is read of them to route and bound them, and what an engine is sent instead.

Everything else in a body is carried to the engine byte for byte. The gateway reads every request by this, the control
plane's route tester those that people ask about. One module an API.
"""

from __future__ import annotations

from policy.asks.api import Endpoint
from policy.asks.ask import APIS, ENDPOINTS, TEXT_FIELD, Ask
from policy.asks.counting import MESSAGE_OVERHEAD_TOKENS, PromptTokens

__all__ = [
    "APIS",
    "ENDPOINTS",
    "MESSAGE_OVERHEAD_TOKENS",
    "TEXT_FIELD",
    "Ask",
    "Endpoint",
    "PromptTokens",
]
