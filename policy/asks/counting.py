"""How texts are counted in tokens."""

from __future__ import annotations

from typing import NamedTuple

# Tokens that a chat template adds to each message, unless a gateway is set otherwise.
MESSAGE_OVERHEAD_TOKENS = 4


class PromptTokens(NamedTuple):
    """`total`: what an engine computes, over all inputs; `longest`: the one input that must fit into the context."""

    total: int
    longest: int
