"""A gateway's share of a limit while gateways cannot count together."""

from __future__ import annotations


def gateway_share(limit: int, live_gateways: int) -> int:
    """`limit` ÷ `live_gateways`, rounded down, so that all shares together stay within the limit.

    A limit above zero leaves at least 1 each: a small limit must not become a permanent refusal. Only below one
    a gateway can the sum pass the limit, by less than the number of gateways.
    """
    if limit == 0:
        return 0
    return max(1, limit // max(1, live_gateways))
