"""Reads a node's GPUs through a child process, within a deadline, whatever NVML does."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
from collections.abc import Callable
from dataclasses import dataclass

from msgspec import UNSET

from gpu_agent.events import Reporter, Severity
from gpu_agent.nvml import health
from gpu_agent.nvml.door import NvmlDoor
from gpu_agent.nvml.fields import FIELD_NAMES, Poll
from gpu_agent.nvml.known import KnownGpu
from gpu_agent.nvml.process import MAX_LEFTOVERS, ChildBroken, NvmlChild
from gpu_agent.nvml.protocol import Answer, Ask, Failed, Ready, Told, Watching, XidSeen
from gpu_agent.nvml.readings import GpuIdentity, GpuReadings, GpuState, Source, merged_parts
from gpu_agent.nvml.release import NotReleased, NvmlReleased, Releases
from gpu_agent.rounds import stood_still

log = logging.getLogger("headworks.agent.nvml")
_SIMULATED = "simulated:"
# A killed child is gone within this time, unless it is stuck in the driver.
_KILL_SECONDS = 1.0
_FIRST_RETRY_SECONDS = 0.2
# One that needs a reboot is looked for as rarely in the end, so many times HEADWORKS_AGENT_NVML_RETRY_SECONDS.
_LOST_INTERVALS = 16


@dataclass(frozen=True)
class NvmlOptions:
    """One field a setting; gpu_agent/settings.py says what each is for."""

    source: str
    library: str
    interval_seconds: float
    slow_interval_seconds: float
    processes_interval_seconds: float
    answer_seconds: float
    open_seconds: float
    retry_seconds: float


class NvmlReader:
    """Keeps a child that has NVML open, asks it about each GPU, and replaces it when it dies or hangs as a whole.

    `on_xid` is called with a GPU's identity, the XID, its Unix time in ms, and the MIG GPU instance, if it is of one.
    """

    def __init__(
        self,
        options: NvmlOptions,
        reporter: Reporter,
        on_xid: Callable[[GpuIdentity, int, int, int | None], None],
        releases: Releases,
    ) -> None:
        self._options, self._reporter, self._on_xid, self._releases = options, reporter, on_xid, releases
        self._door = NvmlDoor(releases, hold_open=self._supervise, closed=self._closed)
        self._gpus: list[KnownGpu] = []
        self._child: NvmlChild | None = None
        # What NVML said when it was last opened.
        self._description: Ready | None = None
        self._leftovers: list[NvmlChild] = []
        self._problem = "" if options.source != "none" else "reading GPUs is switched off"
        self._failed = False
        self._asked = 0
        # GPUs that the reading in progress waits for.
        self._awaited: set[int] = set()
        self._all_answered = asyncio.Event()
        self._open = asyncio.Event()
        self._wholly_hung = asyncio.Event()
        # How long an open NVML is kept for a GPU that is lost: opening it is a moment without XIDs.
        self._patience_seconds = options.retry_seconds
        self._first_outcome = asyncio.Event()
        self._parting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Return once NVML has answered for every GPU, or has failed, or has had its time, or is to be closed."""
        if self._options.source == "none":
            return
        self._door.start()
        await self._first_outcome.wait()
        # A GPU that answers late is no reason yet to show a node without it: where nothing keeps the driver loaded, its
        # first call takes seconds (5 on an H200).
        await self._ask_all(health.patience_seconds(self._options.interval_seconds))

    async def stop(self) -> None:
        """Let go of NVML."""
        await self._door.stop()

    async def release(self, for_seconds: float) -> None:
        """Close NVML for so long, or until `take_up`; release.MAX_SECONDS at most. Returns once it is closed.

        Raises: NotReleased where a process that hangs in the driver keeps NVML open; GPUs are read on then.
        """
        await self._door.close(for_seconds)
        if stuck := [str(child.pid) for child in self._leftovers if child.exit_status is None]:
            await self._door.reopen()
            raise NotReleased(f"NVML stays open: processes hang in the driver and cannot be ended: {', '.join(stuck)}")

    async def take_up(self) -> None:
        """End what `release` began. NVML opens in its own time; a command on the node may keep it closed."""
        await self._door.reopen()

    async def _closed(self) -> None:
        if self._parting is not None:
            await asyncio.gather(self._parting, return_exceptions=True)
        for gpu in self._gpus:
            gpu.forget(released=True)
        self._first_outcome.set()

    @property
    def watches_xids(self) -> bool:
        """Whether NVML tells of the XIDs of a GPU, or of several."""
        return any(gpu.watched for gpu in self._gpus)

    def expect_change(self, index: int) -> None:
        """Ask a GPU with the next reading for all that else is asked for rarely."""
        if index < len(self._gpus):
            self._gpus[index].asked.pop("slow", None)

    @property
    def child_pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    async def read(self) -> GpuReadings:
        """Ask every GPU that owes no answer, and wait `answer_seconds` at most.

        A GPU that has not answered by then shows what it answered last, until that is too old.
        """
        await self._ask_all(self._options.answer_seconds)
        return self._readings()

    async def _ask_all(self, wait_seconds: float) -> None:
        """Ask the GPUs that owe no answer, and wait until all have answered, or for so long."""
        self._send_asks()
        if self._awaited:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_seconds):
                    await self._all_answered.wait()

    def _send_asks(self) -> None:
        now = asyncio.get_running_loop().time()
        self._awaited.clear()
        self._all_answered.clear()
        if self._child is None or not self._open.is_set():
            return
        for index, gpu in enumerate(self._gpus):
            if gpu.pending is not None:
                continue
            self._asked += 1
            gpu.pending = Ask(self._asked, index, self._due(gpu, now))
            gpu.asked |= dict.fromkeys(gpu.pending.polls, now)
            self._awaited.add(index)
            self._child.ask(gpu.pending)
            self._wait_for(gpu, gpu.pending)

    def _wait_for(self, gpu: KnownGpu, ask: Ask) -> None:
        loop = asyncio.get_running_loop()
        due_seconds = loop.time() + health.patience_seconds(self._options.interval_seconds)
        loop.call_at(due_seconds, self._overdue, gpu, ask, due_seconds)

    def _due(self, gpu: KnownGpu, now: float) -> list[Poll]:
        intervals: dict[Poll, float] = {
            "fast": 0,
            "slow": self._options.slow_interval_seconds,
            "once": math.inf,
            "processes": self._options.processes_interval_seconds,
        }
        return [poll for poll, interval in intervals.items() if now - gpu.asked.get(poll, -math.inf) >= interval]

    def _overdue(self, gpu: KnownGpu, ask: Ask, due_seconds: float) -> None:
        if gpu.pending is not ask:
            return
        if stood_still(due_seconds, asyncio.get_running_loop().time()):
            self._wait_for(gpu, ask)
            return
        gpu.forget(released=False)
        self._move(gpu, "unresponsive")
        if all(each.pending is not None and each.state == "unresponsive" for each in self._gpus):
            self._wholly_hung.set()

    def _move(self, gpu: KnownGpu, state: GpuState) -> None:
        if change := health.change(gpu.state, state):
            who = gpu.identity
            detail = f"GPU {who.index} ({who.name or 'unnamed'}, {who.pci_bus_id or 'no PCI bus id'}) {change.says}"
            self._reporter.report(change.kind, who.uuid or f"gpu {who.index}", change.severity, detail)
        gpu.state = state

    def _readings(self) -> GpuReadings:
        now = asyncio.get_running_loop().time()
        oldest = now - health.SILENT_INTERVALS * self._options.interval_seconds
        gpus = [gpu.reading(oldest) for gpu in self._gpus]
        problems = self._problems()
        if self._description is None:
            return GpuReadings(self._expected_source(), gpus=gpus, problems=problems)
        ready = self._description
        cuda_version = ready.cuda_version or UNSET
        return GpuReadings(ready.source, ready.driver_version, gpus, problems, cuda_version=cuda_version)

    def _expected_source(self) -> Source:
        """What is read where nothing could be so far: NVML that fails is not the same as a node that has none."""
        if not self._failed:
            return "none"
        return "simulated" if self._options.source.startswith(_SIMULATED) else "nvml"

    def _problems(self) -> list[str]:
        if self._door.release is not None:
            return [f"NVML is {self._door.release.says}"]
        return [self._problem] * bool(self._problem) + [problem for gpu in self._gpus for problem in gpu.problems()]

    async def _supervise(self) -> None:
        wait_seconds = _FIRST_RETRY_SECONDS
        loop = asyncio.get_running_loop()
        while True:
            self._leftovers = [child for child in self._leftovers if child.exit_status is None]
            if len(self._leftovers) < MAX_LEFTOVERS:
                started = loop.time()
                await self._run_child()
                if loop.time() - started >= self._options.retry_seconds:
                    wait_seconds = _FIRST_RETRY_SECONDS
            else:
                self._fail(f"{MAX_LEFTOVERS} processes hang in the driver and cannot be ended; waiting for one to go")
            await asyncio.sleep(wait_seconds)
            wait_seconds = min(2 * wait_seconds, self._options.retry_seconds)

    async def _run_child(self) -> None:
        """One child, from its start until it has to be replaced."""
        self._open.clear()
        self._wholly_hung.clear()
        try:
            lock = self._releases.lock()
        except NvmlReleased:
            # The door is about to close.
            return
        try:
            child = await NvmlChild.start(self._arguments(), lock)
        except OSError as error:
            self._fail(f"a process to read NVML cannot be started: {error}")
            return
        finally:
            # The child has its own of it.
            if lock is not None:
                os.close(lock)
        self._child = child
        listening = asyncio.create_task(self._listen(child))
        try:
            await self._attend(listening)
        finally:
            listening.cancel()
            self._child = None
            for gpu in self._gpus:
                gpu.let_go()
            self._parting = asyncio.create_task(self._part(child, listening))
            # Goes on where this task is cancelled meanwhile; `stop` waits for it.
            await asyncio.shield(self._parting)

    async def _part(self, child: NvmlChild, listening: asyncio.Task[None]) -> None:
        await asyncio.gather(listening, return_exceptions=True)
        self._end(child)
        if not await child.ended(_KILL_SECONDS):
            self._leftovers.append(child)

    def _end(self, child: NvmlChild) -> None:
        child.kill()

    async def _attend(self, listening: asyncio.Task[None]) -> None:
        """Return when the child has ended, or is to be replaced."""
        options = self._options
        if not await _first(listening, self._open, options.open_seconds):
            self._fail(f"NVML did not open within {options.open_seconds:g} s")
            return
        while not listening.done():
            if not await _first(listening, self._wholly_hung, self._patience_seconds):
                states = {gpu.state for gpu in self._gpus}
                # A client of a driver that was loaded anew since gets errors alone.
                if states == {"error"} or ("lost" in states and "unresponsive" not in states):
                    log.debug("opening NVML afresh, so that GPUs may be found again")
                    longest_seconds = _LOST_INTERVALS * options.retry_seconds
                    self._patience_seconds = min(2 * self._patience_seconds, longest_seconds)
                    return
                self._patience_seconds = options.retry_seconds
            elif self._wholly_hung.is_set():
                self._fail("NVML is unresponsive: no GPU answers")
                return

    async def _listen(self, child: NvmlChild) -> None:
        try:
            async for message in child.told():
                self._hear(message)
                if isinstance(message, Failed):
                    return
        except ChildBroken as error:
            self._fail(f"the process that reads NVML is replaced: {error}", severity="warning")
            return
        await child.ended(_KILL_SECONDS)
        self._fail(f"the process that reads NVML ended with exit status {child.exit_status}", severity="warning")

    def _hear(self, message: Told) -> None:
        match message:
            case Ready():
                self._opened(message)
            case Failed(reason, absent):
                self._fail(reason, absent=absent)
            case Answer():
                self._answered(message)
            case XidSeen(index, xid, at_ms, instance) if index < len(self._gpus):
                self._on_xid(self._gpus[index].identity, xid, at_ms, instance)
            case Watching(index, reason) if index < len(self._gpus):
                self._gpus[index].watched, self._gpus[index].unwatched = not reason, reason

    def _opened(self, ready: Ready) -> None:
        known = self._gpus[: ready.gpus]
        self._gpus = known + [KnownGpu(GpuIdentity(index)) for index in range(len(known), ready.gpus)]
        if ready != self._description:
            log.info("NVML is open: %d GPUs, driver %s (%s)", ready.gpus, ready.driver_version, ready.source)
        self._description = ready
        self._problem = ""
        self._open.set()
        self._first_outcome.set()
        if self._failed:
            self._failed = False
            self._reporter.report("nvml_recovered", "nvml", "info", "NVML can be read again")

    def _answered(self, answer: Answer) -> None:
        gpu = self._gpus[answer.gpu] if answer.gpu < len(self._gpus) else None
        if gpu is None or gpu.pending is None or gpu.pending.number != answer.number:
            return
        polls, gpu.pending = gpu.pending.polls, None
        before = (gpu.identity, gpu.fields.get("mig_mode"))
        gpu.identity = answer.identity or gpu.identity
        gpu.at_ms, gpu.answered = answer.at_ms, asyncio.get_running_loop().time()
        gpu.released = False
        state = health.state_of(answer.fields)
        if state == "lost":
            # It may be lost half-way through a reading, and slow fields may still stand from before.
            gpu.fields = dict.fromkeys(FIELD_NAMES, "lost")
        else:
            gpu.fields = gpu.fields | answer.fields if state == "ok" else answer.fields
        if state == "ok":
            gpu.parts = merged_parts(gpu.parts, answer.parts, polls)
            gpu.processes = answer.processes if "processes" in polls else gpu.processes
        else:
            gpu.parts, gpu.processes, gpu.asked = [], [], {}
        if "once" not in polls and before != (gpu.identity, gpu.fields.get("mig_mode")):
            gpu.asked.pop("once", None)
        self._move(gpu, state)
        self._awaited.discard(answer.gpu)
        if not self._awaited:
            self._all_answered.set()

    def _fail(self, reason: str, *, severity: Severity = "critical", absent: bool = False) -> None:
        before, self._problem = self._problem, reason
        self._first_outcome.set()
        for gpu in self._gpus:
            gpu.released = False
        # A node that never had NVML lacks nothing.
        if not self._failed and not (absent and self._description is None):
            self._failed = True
            self._reporter.report("nvml_failed", "nvml", severity, reason)
        elif reason != before:
            # No event of its own.
            log.warning("NVML: %s", reason)

    def _arguments(self) -> list[str]:
        if self._options.source.startswith(_SIMULATED):
            return ["--simulated", self._options.source.removeprefix(_SIMULATED)]
        return ["--library", self._options.library] if self._options.library else []


async def _first(task: asyncio.Task[None], event: asyncio.Event, timeout_seconds: float) -> bool:
    """Whether the task ended or the event came within that time."""
    coming = asyncio.create_task(event.wait())
    try:
        done, _ = await asyncio.wait({task, coming}, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        coming.cancel()
