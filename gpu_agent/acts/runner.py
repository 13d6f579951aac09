"""Does what the slice asks for: every act once, those on one engine in their order, engines apart from each other."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

import msgspec

from gpu_agent.acts.admission import admit, check_time, subject
from gpu_agent.acts.journal import Entry, Journal
from gpu_agent.acts.order import due
from gpu_agent.acts.outcome import NotDone, failed, refused
from gpu_agent.acts.tools import EngineWork, Kept, NodeWork, Tools
from gpu_agent.policy import NodePolicy
from wire.acts import Request
from wire.messages import ActReport
from wire.snapshot import Act, NodeEngine, NodeSnapshot

log = logging.getLogger("headworks.agent.acts")
_DETAIL_CHARACTERS = 2000
# A report each: what runs for hours is not told of every second.
_PROGRESS_STEP_PERMILLE = 10


class ActRunner:
    """Follows the slice. `on_change` is called when the reports have changed.

    `retry_seconds`: how long an act waits that could not be written down. `clock_ms`: Unix time.
    """

    def __init__(
        self,
        journal: Journal,
        policy: NodePolicy,
        tools: Tools,
        on_change: Callable[[], None],
        *,
        retry_seconds: float,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._journal, self._policy, self._tools, self._on_change = journal, policy, tools, on_change
        self._retry_seconds, self._clock_ms = retry_seconds, clock_ms
        self._acts: dict[str, Act] = {}
        self._engines: dict[str, NodeEngine] = {}
        # Left running by a former run of the agent.
        self._begun_before = {each for each, entry in journal.entries.items() if entry.report.state == "running"}
        self._unknown_past = journal.damaged
        self._refused_unread: set[str] = set()
        self._busy: set[str] = set()
        self._unwritten: dict[str, str] = {}
        self._told: set[str] = set()
        self._progress: dict[str, int] = {}
        self._adopted = self._confirmed = False
        self._wake = asyncio.Event()

    def adopt(self, snapshot: NodeSnapshot, *, confirmed: bool = True) -> None:
        """The slice that holds from now on. What is under way goes on, also if it is no longer in it.

        Not `confirmed`: kept by a former run of the agent. What it asks for may have been taken back since, so nothing
        of it is begun before `confirm`, or the next slice.
        """
        self._confirmed = self._confirmed or confirmed
        self._acts, self._engines = dict(snapshot.acts), dict(snapshot.engines)
        if self._unknown_past:
            # Which of these were begun already is not known, and none may be begun twice.
            self._unknown_past, self._refused_unread = False, set(self._acts)
        self._adopted = True
        self._wake.set()

    @property
    def awaits_confirmation(self) -> bool:
        """Whether there is something to begin that only a former run of the agent was told."""
        return not self._confirmed and any(not self._journal.knows(each) for each in self._acts)

    def confirm(self) -> None:
        """The control plane, asked, has no other slice."""
        self._confirmed = True
        self._wake.set()

    def reports(self) -> list[ActReport]:
        """One for each act that was begun or refused."""
        entries = sorted(self._journal.entries.items(), key=lambda item: (item[1].act.order, item[0]))
        return [self._with_progress(entry.report) for _, entry in entries]

    def _with_progress(self, report: ActReport) -> ActReport:
        permille = self._progress.get(report.id)
        return report if permille is None else msgspec.structs.replace(report, progress_permille=permille)

    def reported(self, reports: list[ActReport]) -> None:
        """The control plane has taken these."""
        entries = self._journal.entries
        taken = {each.id for each in reports if each.id in entries and entries[each.id].report == each}
        self._told |= {each for each in taken if entries[each].report.state != "running"}
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled; what is under way then is settled by the next run."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._forget()
                if not self._adopted:
                    continue
                for name, act_id in self._due().items():
                    self._busy.add(name)
                    tasks.create_task(self._settle(name, act_id))

    def _due(self) -> dict[str, str]:
        unknown = {each: act for each, act in self._acts.items() if not self._journal.knows(each)}
        may_begin = self._confirmed and not self._journal.full
        return due(unknown if may_begin else {}, self._journal.entries, self._begun_before, self._busy)

    async def _forget(self) -> None:
        gone = {each for each in self._told if each in self._journal.entries and each not in self._acts}
        if gone:
            await self._journal.forget(gone, self._clock_ms())
            self._told -= gone
            self._on_change()

    async def _settle(self, name: str, act_id: str) -> None:
        try:
            if act_id in self._begun_before:
                await self._go_on(name, act_id)
                self._begun_before.discard(act_id)
            else:
                await self._begin(name, act_id)
        finally:
            self._busy.discard(name)
            self._wake.set()

    async def _begin(self, name: str, act_id: str) -> None:
        # It may have left the slice by now.
        act = self._acts.get(act_id)
        if act is None:
            return
        engine = self._engines.get(name)
        running = Entry(act, ActReport(act_id, "running", self._clock_ms()))
        try:
            if act_id in self._refused_unread:
                raise refused("journal", "this node's journal was damaged, so it may have been done before; ask again")
            request = admit(act, engine, self._policy)
            check_time(act, running.report.at_ms)
        except NotDone as end:
            # Its arguments may be of any length, and are not looked at again.
            bare = msgspec.structs.replace(act, arguments={})
            await self._end(act_id, msgspec.structs.replace(running, act=bare), end)
            return
        try:
            await self._journal.put(act_id, running)
        except OSError as error:
            await self._wait_for_the_disk(act_id, error)
            return
        self._unwritten.pop(act_id, None)
        if act_id not in self._acts:
            # Taken back while it was written down: every report from then on says that it was not begun.
            await self._journal.forget({act_id}, self._clock_ms())
            return
        log.info("act %s begins: %s", act_id, _said(act))
        self._on_change()
        await self._do(act_id, request, engine)

    async def _go_on(self, name: str, act_id: str) -> None:
        """Settle what was under way when the agent ended: everything but a restart is done once more."""
        entry, engine = self._journal.entries[act_id], self._engines.get(name)
        log.info("act %s goes on after a restart of the agent: %s", act_id, _said(entry.act))
        try:
            request = admit(entry.act, engine, self._policy)
        except NotDone as end:
            await self._end(act_id, entry, failed(end.reason, f"not gone on with: {end.detail}"))
            return
        await self._do(act_id, request, engine)

    async def _do(self, act_id: str, request: Request, engine: NodeEngine | None) -> None:
        entry = self._journal.entries[act_id]
        name = subject(entry.act)
        # Imported late: most nodes are asked for nothing.
        from gpu_agent.acts.doing import do_on_engine, do_on_node

        end: str | NotDone
        try:
            keep = partial(self._keep, act_id)
            if engine is not None:
                policy = self._policy.engine(name)
                end = await do_on_engine(request, EngineWork(name, engine, policy, entry.kept, keep, self._tools))
            else:
                tell = partial(self._tell_progress, act_id)
                work = NodeWork(self._policy, entry.kept, keep, tell, self._tools)
                end = await do_on_node(request, work)
        except NotDone as error:
            end = error
        except Exception as error:
            log.exception("act %s failed", act_id)
            end = failed("internal", f"the agent failed: {type(error).__name__}; its log says more")
        await self._end(act_id, self._journal.entries[act_id], end)

    def _tell_progress(self, act_id: str, permille: int) -> None:
        """In memory alone: a former run of the agent's says nothing of how far the next one is."""
        if self._progress.get(act_id, 0) // _PROGRESS_STEP_PERMILLE != permille // _PROGRESS_STEP_PERMILLE:
            self._on_change()
        self._progress[act_id] = permille

    async def _keep(self, act_id: str, kept: Kept) -> None:
        entry = self._journal.entries[act_id]
        try:
            await self._journal.put(act_id, msgspec.structs.replace(entry, kept=dict(kept)))
        except OSError as error:
            raise failed("journal", f"the agent's state folder takes no file: {error.strerror}") from error

    async def _end(self, act_id: str, entry: Entry, end: str | NotDone) -> None:
        """`end`: what was done in words, or why it was not."""
        self._progress.pop(act_id, None)
        hindrance = self._unwritten.pop(act_id, "")
        if hindrance and isinstance(end, NotDone) and end.reason == "expired":
            end = NotDone("expired", "journal", hindrance)
        at_ms = self._clock_ms()
        report = ActReport(act_id, "done", at_ms, max(0, at_ms - entry.began_at_ms))
        if isinstance(end, NotDone):
            report = msgspec.structs.replace(report, state=end.state, reason=end.reason)
        # Engines and commands may have said anything; it stays one line.
        words = "".join(each if each.isprintable() else " " for each in str(end)).split()
        report = msgspec.structs.replace(report, detail=" ".join(words)[:_DETAIL_CHARACTERS])
        await self._journal.put_end(act_id, Entry(entry.act, report))
        log.info("act %s is %s: %s", act_id, report.state, report.detail)
        self._on_change()

    async def _wait_for_the_disk(self, act_id: str, error: OSError) -> None:
        """What is not written down is not begun: a crash could have it done twice."""
        hindrance = f"it could not be begun, since the agent's state folder takes no file: {error.strerror}"
        if act_id not in self._unwritten:
            log.warning("act %s waits: %s", act_id, hindrance)
        self._unwritten[act_id] = hindrance
        await asyncio.sleep(self._retry_seconds)


def _said(act: Act) -> str:
    return f"{act.action} on {subject(act) or 'the node'}"
