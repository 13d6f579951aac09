"""All engines of a node, as the agent knows them: what to report of them, what to tell, what to push."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, Self

from gpu_agent import settings
from gpu_agent.engines.details import EngineDetails
from gpu_agent.engines.keys import EngineKeys
from gpu_agent.engines.look import Look, Wanted, look_at
from gpu_agent.engines.pages import EnginePages
from gpu_agent.engines.probes import ProbeOptions, Probes
from gpu_agent.engines.samples import engine_samples
from gpu_agent.engines.tell import Told
from gpu_agent.engines.watch import EngineWatch, same_engine
from gpu_agent.host.processes import ProcessMap
from gpu_agent.policy import NodePolicy
from gpu_agent.rounds import next_due
from gpu_agent.telemetry import Telemetry
from wire.messages import EngineReport, FoundEngine
from wire.snapshot import NodeEngine

if TYPE_CHECKING:
    from gpu_agent.adapters.keeper import AdapterKeeper
    from gpu_agent.engines.discovery import Discovery

log = logging.getLogger("headworks.agent.engines")
_DISCOVERY_SECONDS = 60


@dataclass(frozen=True)
class EngineOptions:
    """One field a setting; gpu_agent/settings.py says what each is for."""

    interval_seconds: float
    page_timeout_seconds: float
    page_limit_bytes: int
    hung_seconds: float
    series: tuple[str, ...] | None
    ports: tuple[int, ...]
    probes: ProbeOptions

    @classmethod
    def from_settings(cls) -> Self:
        return cls(
            interval_seconds=settings.PROBE_INTERVAL_SECONDS.read(),
            page_timeout_seconds=settings.PAGE_TIMEOUT_SECONDS.read(),
            page_limit_bytes=settings.PAGE_LIMIT_BYTES.read(),
            hung_seconds=settings.ENGINE_HUNG_SECONDS.read(),
            series=settings.ENGINE_SERIES.read(),
            ports=settings.ENGINE_PORTS.read(),
            probes=ProbeOptions.from_settings(),
        )


class NodeEngines:
    """Looks at them, tries probes, and keeps what was seen of each. Made within a running loop.

    `tell(engine, what)` gets what is worth an event. `on_change` is called when there is something else to report than
    before.
    """

    def __init__(
        self,
        options: EngineOptions,
        policy: NodePolicy,
        processes: ProcessMap,
        telemetry: Telemetry,
        tell: Callable[[str, Told], None],
        on_change: Callable[[], None],
        adapters: AdapterKeeper,
    ) -> None:
        self._options, self._telemetry, self._on_change = options, telemetry, on_change
        self._pages = EnginePages(timeout_seconds=options.page_timeout_seconds, limit_bytes=options.page_limit_bytes)
        self.keys = EngineKeys(policy)
        self._wanted = Wanted(policy, options.series, processes.command_line)
        self._details = EngineDetails(self._pages, policy, processes.command_line)
        self._watch = EngineWatch(
            self._pages,
            self._looked,
            tell,
            Probes(self._pages, tell, self.keys, options.probes),
            hung_seconds=options.hung_seconds,
            wanted=self._wanted,
        )
        self._adapters = adapters
        self._discovery: Discovery | None = None
        self.configured: Mapping[str, NodeEngine] = {}
        self.seen: Mapping[str, EngineReport] = {}
        # Set when there may be engines to look at before the next round is due.
        self._adopted = asyncio.Event()

    def adopt(self, engines: Mapping[str, NodeEngine]) -> None:
        """The engines from now on. What was seen of one that is gone, or is another under its name, says nothing."""
        before, self.configured = self.configured, engines
        self.seen = {name: seen for name, seen in self.seen.items() if same_engine(before.get(name), engines.get(name))}
        for gone in before.keys() - engines.keys():
            self._telemetry.end(_part(gone))
        self._details.keep_only(engines)
        self._adapters.keep_only(engines)
        self._adopted.set()

    def reports(self) -> list[EngineReport]:
        """One that was not seen yet is left out: nothing is known of it."""
        return [self.seen[name] for name in sorted(self.configured) if name in self.seen]

    def found(self) -> list[FoundEngine]:
        return self._discovery.found(self._urls()) if self._discovery is not None else []

    async def look(self, name: str, engine: NodeEngine) -> Look:
        """One look out of turn, which nothing else learns of."""
        return await look_at(self._pages, name, engine, self._wanted)

    def expect_restart(self, name: str, within_seconds: float) -> None:
        """Somebody asked for the next restart of this engine, if it comes within this time."""
        self._watch.expect_restart(name, within_seconds)

    async def keep_looking(self, begun_seconds: float) -> NoReturn:
        """A round every interval from `begun_seconds` of the loop's clock on, and one for each engine that is new."""
        clock = asyncio.get_running_loop().time
        due_seconds = begun_seconds
        while True:
            self._adopted.clear()
            self._watch.look(self.configured)
            if clock() >= due_seconds:
                due_seconds = next_due(due_seconds, clock(), self._options.interval_seconds)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due_seconds):
                    await self._adopted.wait()

    async def keep_discovering(self) -> None:
        """Try the ports of the settings every now and then; ends at once where there are none."""
        if not self._options.ports:
            return
        # Late: few nodes look for engines that nobody has configured.
        from gpu_agent.engines.discovery import Discovery

        self._discovery = Discovery(self._pages, self._options.ports)
        while True:
            if await self._discovery.look(self._urls()):
                self._on_change()
            await asyncio.sleep(_DISCOVERY_SECONDS)

    async def stop(self) -> None:
        self._details.stop()
        self._adapters.stop()
        await self._watch.stop()

    def _urls(self) -> list[str]:
        return [engine.url for engine in self.configured.values()]

    def _looked(self, engine: NodeEngine, look: Look) -> None:
        seen = self._adapters.add_to(self._details.add_to(look.report))
        # It may be gone from the configuration since the look began.
        if not same_engine(self.configured.get(seen.name), engine):
            return
        # As it is configured by now: what it shall hold may have changed since the look began.
        engine = self.configured[seen.name]
        self._details.looked(seen.name, engine, look)
        self._adapters.looked(seen.name, engine, look)
        samples = [*engine_samples(seen.name, engine, look), *self._details.samples(seen.name, engine)]
        self._telemetry.add(_part(seen.name), samples)
        before = self.seen.get(seen.name)
        if seen == before:
            return
        self.seen = {**self.seen, seen.name: seen}
        self._on_change()
        if before is None or (before.state, before.version) != (seen.state, seen.version):
            log.info("engine %s is %s: %s", seen.name, seen.state, seen.error or seen.version or "")


def _part(name: str) -> str:
    """Of the telemetry; other parts' names hold no colon."""
    return f"engine:{name}"
