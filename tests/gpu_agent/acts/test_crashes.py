"""kill -9 of the agent at any step: no act is lost, repeated or done out of its order."""

from __future__ import annotations

import asyncio
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_agent.acts import doing, journal
from gpu_agent.acts.journal import Journal
from gpu_agent.acts.outcome import refused
from gpu_agent.acts.runner import ActRunner
from tests.gpu_agent.acts.test_runner import ENGINES, POLICY, act_id, slice_of
from tests.gpu_agent.acts.works import act, tools, until
from wire.files import write_private


class Crash(BaseException):
    """kill -9, as far as a test can do it to itself: nothing catches it."""


class Life:
    """One run of the agent, which ends at its `steps`-th step: a write before or after it is on disk, or a doing."""

    def __init__(self, steps):
        self.steps = steps

    def step(self):
        self.steps -= 1
        if self.steps <= 0:
            raise Crash


SUBJECTS = st.sampled_from(ENGINES)
ACTS = st.lists(st.tuples(SUBJECTS, st.integers(0, 3), st.booleans()), min_size=1, max_size=6)


@settings(max_examples=40, deadline=None)
@given(acts=ACTS, crashes=st.lists(st.integers(1, 25), max_size=4))
def test_a_crash_at_any_step_neither_repeats_an_end_nor_loses_an_act_nor_changes_the_order(acts, crashes):
    wanted = {act_id(number): act("sleep", name, order) for number, (name, order, _) in enumerate(acts)}
    refusing = {act_id(number) for number, (_, _, refuses) in enumerate(acts) if refuses}
    log: list[list[tuple[str, str]]] = []
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for steps in [*crashes, 10**9]:
            log.append([])
            _live(Life(steps), folder, patch, wanted, refusing, log[-1])
        final = msgspec.json.decode(Path(folder, "acts.json").read_bytes())["entries"]
    assert {each: entry["report"]["state"] for each, entry in final.items()} == {
        each: "refused" if each in refusing else "done" for each in wanted
    }
    events = [event for life in log for event in life]
    for each in wanted:
        mine = [kind for kind, other in events if other == each]
        assert mine.count("kept") == 1, "an end is kept once"
        assert mine[-1] == "kept", "nothing is begun after its end"
    for life in log:
        began = [each for kind, each in life if kind == "begin"]
        assert len(began) == len(set(began)), "once in a life"
    by_subject: defaultdict[Any, list[str]] = defaultdict(list)
    for kind, each in events:
        if kind == "begin" and each not in by_subject[wanted[each].engine]:
            by_subject[wanted[each].engine].append(each)
    for begun in by_subject.values():
        assert begun == sorted(begun, key=lambda each: (wanted[each].order, each))


def _live(life, folder, patch, wanted, refusing, log):
    def write(path, data):
        life.step()
        write_private(path, data)
        entries = msgspec.json.decode(data)["entries"]
        for each, entry in entries.items():
            if entry["report"]["state"] != "running" and each not in finals:
                finals.add(each)
                log.append(("kept", each))
        life.step()

    async def do(request, work):
        (each,) = [
            each
            for each, entry in runner_journal.entries.items()
            if entry.report.state == "running" and entry.act.engine == work.name
        ]
        life.step()
        log.append(("begin", each))
        await asyncio.sleep(0)
        life.step()
        if each in refusing:
            raise refused("dev_mode_off", "it refuses")
        return "done"

    async def run():
        runner = ActRunner(runner_journal, POLICY, tools(), lambda: None, retry_seconds=0.01)
        runner.adopt(slice_of(wanted))
        task = asyncio.create_task(runner.run())
        await until(lambda: task.done() or _all_ended(runner, wanted))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    patch.setattr(journal, "write_private", write)
    patch.setattr(doing, "do_on_engine", do)
    runner_journal = Journal(Path(folder) / "acts.json")
    finals = {each for each, entry in runner_journal.entries.items() if entry.report.state != "running"}
    asyncio.run(run())


def _all_ended(runner, wanted):
    return {report.id for report in runner.reports() if report.state != "running"} >= wanted.keys()
