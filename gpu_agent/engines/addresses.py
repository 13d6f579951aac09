"""Which addresses are this node's own.

A key of the node's policy, and whatever changes an engine, goes to no other machine unless that policy names it: the
addresses of engines come from the control plane.
"""

from __future__ import annotations

import ipaddress
import socket
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from gpu_agent.engines.resolver import EngineResolver
from gpu_agent.host.apart import Apart, NoAnswer

# What socket.getaddrinfo tells of one address.
AddressInfo = tuple[Any, Any, int, str, Any]
_LOOKUP_SECONDS = 5.0
# Any: the socket that asks for a route sends nothing.
_DISCARD_PORT = 9


class ForeignUrl(Exception):
    """An address that nothing secret and no act may go to; the message says what would be right."""


async def check_url(url: str, named: str | None) -> None:
    """`named`: the engine's address by the node's policy. Raises: ForeignUrl."""
    if named is not None:
        if url != named:
            raise ForeignUrl(f"{url} is not the engine's url in this node's policy, which is {named}")
        return
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 0
    lookup: Apart[list[AddressInfo]] = Apart("engine-address")
    try:
        found = await lookup.run(partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM), _LOOKUP_SECONDS)
    # UnicodeError: a host that cannot be a name in DNS.
    except (OSError, NoAnswer, UnicodeError) as error:
        raise ForeignUrl(f"{host} cannot be looked up: {error}") from error
    if not any(_is_own(each) for each in found):
        raise ForeignUrl(_foreign(host))


def connector(*, here_only: bool = False, **options: Any) -> aiohttp.TCPConnector:
    """Of aiohttp. `here_only`: to this node's own addresses alone, whatever a name leads to at the next lookup."""
    return aiohttp.TCPConnector(resolver=EngineResolver(), socket_factory=_own_socket if here_only else None, **options)


def _own_socket(info: AddressInfo) -> socket.socket:
    """Raises: OSError for an address of another machine."""
    if not _is_own(info):
        raise OSError(None, _foreign(str(info[4][0])))
    family, kind, protocol, _, _ = info
    return socket.socket(family, kind, protocol)


def _foreign(host: str) -> str:
    return f"{host} is no address of this node: if the engine is there, name its url in this node's policy"


def _is_own(info: AddressInfo) -> bool:
    """Loopback, or an address of one of this node's interfaces."""
    family, _, _, _, address = info
    wanted = ipaddress.ip_address(str(address[0]).partition("%")[0])
    if wanted.is_loopback:
        return True
    # By its routes: what goes to an own address comes from it. That it can be bound would say less.
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address[0], _DISCARD_PORT, *address[2:]))
        except OSError:
            return False
        source = probe.getsockname()[0]
    return ipaddress.ip_address(source.partition("%")[0]) == wanted
