"""Row 15: file descriptors and ports, which end before the GPU where streams are long."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from controlplane.diagnosis.detector import Detector, Edit, Evidence, Finding, Fleet, Lever, Readings
from controlplane.diagnosis.detectors.confidence import combined
from controlplane.diagnosis.detectors.numbers import named, of, share
from controlplane.diagnosis.detectors.promql import typical


def _near(used: str, limit: str, *by: str) -> str:
    """The largest use of a limit within the window, as a share of it."""
    return f"max by ({', '.join(by)}) (max_over_time({used}[$window]) / last_over_time({limit}[$window]))"


def _connections(state: str) -> str:
    return f'sum by (engine) (max_over_time(headworks_engine_connections{{state="{state}"}}[$window]))'


class Sockets(Detector):
    """An engine's process, a node or a gateway has nearly as many files open as it may, or a node nearly no port left.

    That is so whatever else is wrong: slow engines make long streams and so many sockets, which rows 1 to 10 tell, and
    an API server that accepts nothing has a backlog (row 16) long before its files end.
    """

    number = 15
    name = "sockets"
    title = _("Sockets and ports")
    explanation = _(
        "An answer that is streamed keeps its TCP socket open for 30 to 90 s where a usual API takes milliseconds. "
        "Four things end: file descriptors, ephemeral ports, a browser's six connections a host, and patience of "
        "proxies in between. Raising the limit of files mends the first alone."
    )
    queries: ClassVar = {
        "engine_share": _near("headworks_engine_process_open_fds", "headworks_engine_process_fd_limit", "engine"),
        "engine_files": "max by (engine) (max_over_time(headworks_engine_process_open_fds[$window]))",
        "engine_limit": "min by (engine) (last_over_time(headworks_engine_process_fd_limit[$window]))",
        "established": _connections("established"),
        "time_wait": _connections("time_wait"),
        "close_wait": _connections("close_wait"),
        "files_share": _near("headworks_host_file_descriptors_used", "headworks_host_file_descriptors_limit", "node"),
        "files_limit": "max by (node) (last_over_time(headworks_host_file_descriptors_limit[$window]))",
        "ports_share": _near("headworks_host_ephemeral_ports_used", "headworks_host_ephemeral_ports_limit", "node"),
        "ports_limit": "max by (node) (last_over_time(headworks_host_ephemeral_ports_limit[$window]))",
        "gateway_share": _near("headworks_gateway_open_fds", "headworks_gateway_fd_limit", "gateway"),
        "gateway_limit": "max by (gateway) (last_over_time(headworks_gateway_fd_limit[$window]))",
        "streams": "max by (gateway) (max_over_time(headworks_gateway_requests_in_flight[$window]))",
        "in_flight": typical("headworks_gateway_pool_requests", "pool"),
    }
    # One wave from the limit: what is in use doubles within seconds where streams last for a minute.
    NEAR = 0.8
    # Nobody gets a socket any more, or soon will not.
    AT_LIMIT = 0.95
    # What requests may take of an engine's files: it goes on to answer its own health page, and connections that idle
    # until they are used again need some, too.
    LEFT_IN_USE = 0.6
    # A cap below this share of what is under way refuses more than it helps.
    CAP_SHARE = 0.5
    # Ports from 1024 on, where Linux itself begins at 32768.
    PORTS_WIDEST = 64_512
    # More that wait to be forgotten than are open: each request has a connection of its own.
    NO_KEEP_ALIVE = 1.0
    FILES_USUAL = 65_536

    def judge(self, readings: Readings, fleet: Fleet) -> Iterator[Finding]:
        yield from self._engines(readings, fleet)
        yield from self._nodes(readings, fleet)
        yield from self._gateways(readings)

    def _confidence(self, used: float) -> int:
        return combined(800, *[800] * (used >= self.AT_LIMIT))

    def _engines(self, readings: Readings, fleet: Fleet) -> Iterator[Finding]:
        files, limits = named(readings.by("engine_files", "engine")), named(readings.by("engine_limit", "engine"))
        established = named(readings.by("established", "engine"))
        leaking = named(readings.by("close_wait", "engine"))
        for engine, used in sorted(named(readings.by("engine_share", "engine")).items()):
            if used < self.NEAR or engine not in fleet.engines:
                continue
            limit, open_files = limits.get(engine, 0.0), files.get(engine, 0.0)
            evidence = [
                Evidence("files_used", used, "ratio", self.NEAR,
                         f"{of('headworks_engine_process_open_fds', engine=engine)}"
                         f" / {of('headworks_engine_process_fd_limit', engine=engine)}"),
                Evidence("open_files", open_files, "count", limit or None),
            ]  # fmt: skip
            if engine in established:
                evidence.append(Evidence("connections", established[engine], "count"))
            left_open = leaking.get(engine, 0.0)
            if left_open:
                evidence.append(Evidence("not_closed_by_the_engine", left_open, "count"))
            said = format_lazy(
                _("{engine} has {files} of {limit} files open"),
                engine=engine, files=f"{open_files:.0f}", limit=f"{limit:.0f}",
            )  # fmt: skip
            pool = str(fleet.engines[engine]["pool"])
            levers = self._of_engine(readings, fleet, engine, limit, open_files, established.get(engine))
            yield Finding(f"engine/{engine}", said, self._confidence(used), tuple(evidence), (pool,),
                          tuple(fleet.tenants_of.get(pool, {})), levers)  # fmt: skip

    def _of_engine(
        self, readings: Readings, fleet: Fleet, engine: str, limit: float, open_files: float, established: float | None
    ) -> tuple[Lever, ...]:
        """A cap holds at once; a limit of files waits for a restart, and goes before a cap that would refuse many."""
        pool = str(fleet.engines[engine]["pool"])
        more, most = self._more_files(engine, open_files), self._fitting(fleet, pool, limit, open_files, established)
        if most is None:
            return (more,)
        fewer = self._fewer_requests(fleet, pool, most, limit, open_files - (established or 0.0))
        refuses_many = most < self.CAP_SHARE * readings.by_pool("in_flight").get(pool, 0.0)
        return (more, fewer) if refuses_many else (fewer, more)

    def _more_files(self, whose: str, open_files: float) -> Lever:
        wanted = max(self.FILES_USUAL, 1 << math.ceil(math.log2(max(1.0, 2 * open_files))))
        advice = format_lazy(
            _("Give the process of {whose} LimitNOFILE={wanted} (systemd), or ulimit -n {wanted} before it starts. "
              "Nginx takes worker_rlimit_nofile and worker_connections besides."), whose=whose, wanted=wanted,
        )  # fmt: skip
        why = format_lazy(_("Twice what is open now, {files}, and no less than {usual}"),
                          files=f"{open_files:.0f}", usual=self.FILES_USUAL)  # fmt: skip
        return Lever("file_limit", _("Allow more open files"), why, advice=advice)

    def _fitting(
        self, fleet: Fleet, pool: str, limit: float, open_files: float, established: float | None
    ) -> int | None:
        """The requests that the pool's engines have files for; None where that is not known, or bounds nothing."""
        facts = fleet.pools.get(pool)
        if facts is None or not facts.engines or established is None:
            return None
        each = math.floor(limit * self.LEFT_IN_USE - max(0.0, open_files - established))
        most = each * len(facts.engines)
        return None if each < 1 or (facts.row["max_concurrency"] or math.inf) <= most else most

    def _fewer_requests(self, fleet: Fleet, pool: str, most: int, limit: float, other_files: float) -> Lever:
        """Until then, let gateways hold no more at the pool than its files are enough for."""
        why = format_lazy(
            _("{left} % of {limit} files, less {other} that are no connections, for each of {engines} engines"),
            left=round(self.LEFT_IN_USE * 100), limit=f"{limit:.0f}", other=f"{max(0.0, other_files):.0f}",
            engines=len(fleet.pools[pool].engines),
        )  # fmt: skip
        return Lever("fewer_at_once", _("Let fewer requests be at the pool at once"), why,
                     (Edit("pools", pool, {"max_concurrency": most}),),
                     advice=_("Take it back once the limit is raised."))  # fmt: skip

    def _nodes(self, readings: Readings, fleet: Fleet) -> Iterator[Finding]:
        files, ports = named(readings.by("files_share", "node")), named(readings.by("ports_share", "node"))
        files_limit = named(readings.by("files_limit", "node"))
        ports_limit = named(readings.by("ports_limit", "node"))
        for node in sorted(files.keys() | ports.keys()):
            used = max(files.get(node, 0.0), ports.get(node, 0.0))
            if used < self.NEAR:
                continue
            evidence, levers = [], []
            if files.get(node, 0.0) >= self.NEAR:
                evidence.append(Evidence("files_used", files[node], "ratio", self.NEAR,
                                         f"{of('headworks_host_file_descriptors_used', node=node)}"
                                         f" / {of('headworks_host_file_descriptors_limit', node=node)}"))  # fmt: skip
                levers.append(_more_host_files(node, files_limit.get(node, 0.0)))
            if ports.get(node, 0.0) >= self.NEAR:
                evidence.append(Evidence("ports_used", ports[node], "ratio", self.NEAR,
                                         f"{of('headworks_host_ephemeral_ports_used', node=node)}"
                                         f" / {of('headworks_host_ephemeral_ports_limit', node=node)}"))  # fmt: skip
                levers += self._ports(readings, fleet, node, ports_limit.get(node, 0.0))
            said = format_lazy(
                _("{node} has used {share} % of its {what}"), node=node, share=f"{used * 100:.0f}",
                what=_("file descriptors") if used == files.get(node) else _("ephemeral ports"),
            )  # fmt: skip
            pools = tuple(sorted({row["pool"] for row in fleet.engines.values() if row["node"] == node}))
            tenants = tuple(sorted({tenant for pool in pools for tenant in fleet.tenants_of.get(pool, {})}))
            yield Finding(f"node/{node}", said, self._confidence(used), tuple(evidence), pools, tenants, tuple(levers))

    def _ports(self, readings: Readings, fleet: Fleet, node: str, limit: float) -> Iterator[Lever]:
        of_node = [name for name, row in fleet.engines.items() if row["node"] == node]
        waiting = sum(named(readings.by("time_wait", "engine")).get(name, 0.0) for name in of_node)
        established = sum(named(readings.by("established", "engine")).get(name, 0.0) for name in of_node)
        if waiting > self.NO_KEEP_ALIVE * max(1.0, established):
            why = format_lazy(
                _("{waiting} connections of {node} wait to be forgotten beside {open} that are open"),
                waiting=f"{waiting:.0f}", node=node, open=f"{established:.0f}",
            )  # fmt: skip
            yield Lever("keep_alive", _("Keep connections"), why, advice=_(
                "Something opens a connection for each request. Use HTTP/1.1 with keep-alive, or HTTP/2, in every "
                "proxy between clients, gateways and engines (NGINX: proxy_http_version 1.1, an empty Connection "
                "header and keepalive in the upstream)."))  # fmt: skip
        if limit < self.PORTS_WIDEST:
            why = format_lazy(_("{limit} ports now, {widest} then"), limit=f"{limit:.0f}", widest=self.PORTS_WIDEST)
            yield Lever("more_ports", _("Widen the range of ports"), why, advice=_(
                'sysctl net.ipv4.ip_local_port_range="1024 65535" net.ipv4.tcp_tw_reuse=1, leaving out ports that '
                "servers of the node listen at (net.ipv4.ip_local_reserved_ports)."))  # fmt: skip

    def _gateways(self, readings: Readings) -> Iterator[Finding]:
        streams = named(readings.by("streams", "gateway"))
        limits = named(readings.by("gateway_limit", "gateway"))
        for gateway, used in sorted(named(readings.by("gateway_share", "gateway")).items()):
            if used < self.NEAR:
                continue
            limit, running = limits.get(gateway, 0.0), streams.get(gateway, 0.0)
            evidence = (
                Evidence("files_used", used, "ratio", self.NEAR,
                         f"{of('headworks_gateway_open_fds', gateway=gateway)}"
                         f" / {of('headworks_gateway_fd_limit', gateway=gateway)}"),
                Evidence("streams", running, "requests", None,
                         of("headworks_gateway_requests_in_flight", gateway=gateway)),
                Evidence("files_a_stream", share(used * limit, running), "count", 2.0),
            )  # fmt: skip
            said = format_lazy(
                _("Gateway {gateway} has used {share} % of its {limit} files, with {streams} requests under way"),
                gateway=gateway, share=f"{used * 100:.0f}", limit=f"{limit:.0f}", streams=f"{running:.0f}",
            )  # fmt: skip
            another = Lever(
                "another_gateway", _("Add a gateway"), _("A stream holds two sockets of its gateway"),
                advice=_("Gateways keep no state of their own: one more halves what each holds. See that the balancer "
                         "counts connections instead of taking turns."),
            )  # fmt: skip
            levers = (self._more_files(gateway, used * limit), another)
            yield Finding(f"gateway/{gateway}", said, self._confidence(used), evidence, levers=levers)


def _more_host_files(node: str, limit: float) -> Lever:
    wanted = round(2 * limit)
    advice = format_lazy(_("sysctl fs.file-max={wanted} on {node}, and look for what keeps files open: ls /proc/*/fd"),
                         wanted=wanted, node=node)  # fmt: skip
    why = format_lazy(_("Twice {limit}"), limit=round(limit))
    return Lever("host_file_limit", _("Allow the node more open files"), why, advice=advice)
