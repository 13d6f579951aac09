"""Where a webhook may go: which URLs may be set, and which addresses may be connected to. Pure.

A webhook's URL is an operator's to choose, and the control plane stands where it reaches more than its callers do
(OWASP, "Server-Side Request Forgery Prevention"). So a literal address is judged when the URL is set, and every address
again at the moment of connecting, whatever the host's name resolved to.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import SplitResult, urlsplit

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

URL_MAX_CHARACTERS = 500
ALLOWED_SETTING = "HEADWORKS_WEBHOOK_ALLOWED_NETWORKS"
URL_FORM = "give http(s)://host[:port]/path without credentials, query or fragment"
QUERY_URL_FORM = "give http(s)://host[:port]/path, with ?query where it has one, without credentials or fragment"

_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?")
# WHATWG's URL standard, "ends in a number": resolvers read such a host as an IPv4 address (2130706433, 0x7f.1).
_NUMBER = re.compile(r"(?:\d+|0[xX][0-9A-Fa-f]*)")
_PATH = re.compile(r"[A-Za-z0-9/._~!$&'()*+,;=:@%-]*")
# Of clouds' metadata services, beside the link-local ones: AWS, Google, Alibaba, Oracle, Azure.
_METADATA = frozenset(
    map(ip_address, ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "192.0.0.192", "168.63.129.16"))
)
_THIS_NETWORK = IPv4Network("0.0.0.0/8")
_NAT64 = IPv6Network("64:ff9b::/96")
# A site's own NAT64 (RFC 8215), translated addresses (RFC 2765): most often the last 32 bits are an IPv4 address.
_OWN_NAT64 = tuple(map(IPv6Network, ("64:ff9b:1::/48", "::ffff:0:0:0/96")))
# All that IANA has given out. Beyond it are forms that lead to IPv4 addresses.
_GLOBAL_UNICAST = IPv6Network("2000::/3")


def url_refusal(
    url: str, allowed: Sequence[Network], *, longest: int = URL_MAX_CHARACTERS, query: bool = False
) -> str | None:
    """What would be right, or None where the URL may be set. Names are not resolved here: they are at each delivery.

    One that is a secret itself may be longer, and may have a `query`, as services give such URLs out.
    """
    if len(url) > longest:
        return f"give {longest} characters at most"
    form = QUERY_URL_FORM if query else URL_FORM
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return form
    if port == 0 or not _has_the_form(parts, url, query=query):
        return form
    if "[" in parts.netloc or _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]):
        return _literal_refusal(host, allowed)
    return None if len(host) <= 253 and _HOST.fullmatch(host) else form


def _has_the_form(parts: SplitResult, url: str, *, query: bool) -> bool:
    return (
        parts.scheme in ("http", "https")
        and url.startswith(f"{parts.scheme}://")
        and "@" not in parts.netloc
        and not ({"#", " "} & set(url))
        and (query or "?" not in url)
        # urlsplit takes line ends out before it splits.
        and url.isprintable()
        and bool(_PATH.fullmatch(parts.path) and _PATH.fullmatch(parts.query.replace("?", "")))
    )


def _literal_refusal(host: str, allowed: Sequence[Network]) -> str | None:
    try:
        return address_refusal(host, allowed)
    except ValueError:
        return "write an address as 192.0.2.1 or [2001:db8::1], without a zone"


def address_refusal(text: str, allowed: Sequence[Network]) -> str | None:
    """Why this address is not connected to; None where it may be. Raises ValueError where it is no address.

    Public addresses may; private and loopback ones where `allowed` holds them; link-local ones, those of clouds'
    metadata services, multicast and unspecified ones never. An IPv6 address that carries an IPv4 one is judged as both.
    """
    address = ip_address(text)
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        raise ValueError("an address with a zone")
    for one in (address, *_carried(address), *_perhaps_carried(address)):
        if _never(one):
            return f"{text} is a link-local, metadata, multicast or unspecified address, which no webhook may reach"
    if any(_permitted(one, allowed) for one in _carried(address) or (address,)):
        return None
    return f"{text} is a private or loopback address; an administrator may add its network to {ALLOWED_SETTING}"


def _permitted(address: Address, allowed: Sequence[Network]) -> bool:
    public = address.is_global and (isinstance(address, IPv4Address) or address in _GLOBAL_UNICAST)
    return public or any(address in network for network in allowed)


def _never(address: Address) -> bool:
    return (
        address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address in _METADATA
        or (isinstance(address, IPv4Address) and (address.is_reserved or address in _THIS_NETWORK))
    )


def _carried(address: Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses that traffic to an IPv6 one ends at: mapped, 6to4, Teredo, NAT64 (RFC 6052)."""
    if isinstance(address, IPv4Address):
        return ()
    if address.ipv4_mapped:
        return (address.ipv4_mapped,)
    if address.sixtofour:
        return (address.sixtofour,)
    if address.teredo:
        return address.teredo
    return (_last_32_bits(address),) if address in _NAT64 else ()


def _perhaps_carried(address: Address) -> tuple[IPv4Address, ...]:
    """Those of which nobody but the site knows: enough to refuse by, never to permit by."""
    if isinstance(address, IPv6Address) and any(address in network for network in _OWN_NAT64):
        return (_last_32_bits(address),)
    return ()


def _last_32_bits(address: IPv6Address) -> IPv4Address:
    return IPv4Address(int(address) & 0xFFFF_FFFF)
