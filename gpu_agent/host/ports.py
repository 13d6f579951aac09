"""Where on this node each engine listens: in which network namespace, at which port."""

from __future__ import annotations

import ipaddress
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from wire.snapshot import NodeEngine


class Place(NamedTuple):
    """`folder`: the one of /proc whose `net` shows the namespace."""

    folder: Path
    port: int


class Places(NamedTuple):
    """`by_engine`: what is known. `problems`: why it is not, by engine."""

    by_engine: dict[str, Place]
    problems: dict[str, str]


def is_own_address(host: str) -> bool:
    """Whether this network namespace has the address; a name is taken for one of it, since asking DNS may take long."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return True
    with socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True


def engine_places(
    engines: Mapping[str, NodeEngine],
    proc: Path,
    elsewhere: Callable[[set[str]], Mapping[str, Path]],
    is_own: Callable[[str], bool] = is_own_address,
) -> Places:
    """`elsewhere`: the folders of addresses that other namespaces have. `proc`: that of this one."""
    urls = {name: urlsplit(engine.url) for name, engine in engines.items()}
    hosts = {name: url.hostname or "" for name, url in urls.items()}
    foreign = {host for host in hosts.values() if not is_own(host)}
    folders = elsewhere(foreign)
    found = Places({}, {})
    places: dict[str, Place] = {}
    for name, host in hosts.items():
        if host in foreign and host not in folders:
            found.problems[name] = f"{host} is an address of no network namespace that is seen here"
        else:
            places[name] = Place(folders[host] if host in foreign else proc, _port(urls[name]))
    times = Counter(places.values())
    for name, place in places.items():
        if times[place] > 1:
            found.problems[name] = f"several engines are configured at port {place.port}"
        else:
            found.by_engine[name] = place
    return found


def _port(url: SplitResult) -> int:
    return url.port or (443 if url.scheme == "https" else 80)
