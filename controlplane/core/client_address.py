"""Who sent a request, where proxies stand in between: the last address that only a trusted proxy can have written."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Network = IPv4Network | IPv6Network


def client_address(peer: str, forwarded_for: str, trusted: Sequence[Network]) -> str:
    """The address of the client behind `peer`, which is the other end of the connection.

    `forwarded_for` is the X-Forwarded-For header: each proxy appends the address that it was called from, so only
    what the trusted ones appended is known to be true; what stands before that a client may have made up. An entry
    that is no address ends the walk: then the answer is the trusted proxy that passed it on.
    """
    address = _read(peer)
    if address is None:
        return peer
    hops = forwarded_for.split(",") if forwarded_for else []
    while hops and any(address in network for network in trusted):
        before = _read(hops.pop())
        if before is None:
            break
        address = before
    return str(address)


def _read(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text.strip())
    except ValueError:
        return None
    # A socket for both families shows IPv4 clients as ::ffff:192.0.2.1.
    return getattr(address, "ipv4_mapped", None) or address
