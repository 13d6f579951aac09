"""One pathology from its injection to the proof that its lever moved it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.support.control_plane import wait_until
from bench.support.lab import acts
from bench.support.lab.clients import Clients
from bench.support.lab.findings import Found, Watch, finding, standing
from bench.support.lab.fleet import Lab
from bench.support.lab.goodput import BACKLOG_SECONDS, ENDED_SECONDS, Goodput
from bench.support.lab.healthy import HEALTHY, JUDGED
from bench.support.lab.injection import Injection
from bench.support.lab.pathology import Pathology
from bench.support.lab.plan import ENGINES
from controlplane.rest_client import RestError

# Detection may take two windows, clearing as much as a verification waits for.
_FIND_WINDOWS, _MORE_FIND_WINDOWS, _CLEAR_WINDOWS = 2.0, 1.0, 4.0
_QUIET_WINDOWS = 4.0
# What a drill may fail with: SystemExit is of an engine that did not start (engine_control).
_FAILURES = (RestError, RuntimeError, OSError, SystemExit)


@dataclass
class Result:
    """What was seen. Seconds are counted from the injection, and for `cleared_seconds` from the lever; None: never.

    Goodput is the part of the healthy traffic that was answered well: `goodput_after` of what was sent once all ran the
    lever and those who had come before were served or gone, which took `backlog_seconds`; `backlog_left` were not when
    that was long enough. `endings_after`: by kind of client, how all of it ended. `others`: what else fired, and when.
    `load_a_core`: processes of this machine that wanted a processor, for each that it has.
    """

    name: str
    found_seconds: float | None = None
    subject: str = ""
    others: dict[str, float] = field(default_factory=dict)
    lever: str = ""
    lever_said: str = ""
    cleared_seconds: float | None = None
    goodput_before: float = 0.0
    goodput_injected: float = 0.0
    goodput_after: float | None = None
    backlog_seconds: float = 0.0
    backlog_left: int = 0
    endings_after: dict[str, dict[str, int]] = field(default_factory=dict)
    evidence: list[dict[str, Any]] = field(default_factory=list)
    load_a_core: float = 0.0
    problem: str = ""

    @property
    def goodput_percent(self) -> float | None:
        if self.goodput_after is None or not self.goodput_before:
            return None
        return 100 * self.goodput_after / self.goodput_before

    def described(self) -> dict[str, Any]:
        return {**asdict(self), "goodput_percent": self.goodput_percent}


@dataclass
class Drill:
    """Runs pathologies on one fleet, one after another. `say`: told of each step as it begins.

    `measure_seconds`: of each measurement of goodput; 0: none is made.
    """

    lab: Lab
    clients: Clients
    say: Callable[[str], None]
    measure_seconds: float = 20.0

    def __post_init__(self) -> None:
        self._injection = Injection(self.lab, self.clients)
        self._goodput = Goodput(self.clients, self.measure_seconds)
        self._goodput.well()

    def healthy(self, seconds: float) -> Result:
        """Nothing is injected, and nothing may fire."""
        watch = Watch(self.lab.rest)
        watch.until(lambda _: False, seconds)
        now = time.monotonic()
        goodput = self.clients.goodput(watch.since, now - ENDED_SECONDS, JUDGED)
        return Result("healthy", others=watch.seconds_to, goodput_before=goodput)

    def run(self, pathology: Pathology) -> Result:
        """Whatever fails is the result's `problem`."""
        result = Result(pathology.name)
        try:
            self._drill(pathology, result)
        except _FAILURES as error:
            result.problem = f"{type(error).__name__}: {error}"
        self.say("back to a healthy day")
        try:
            self._injection.end()
            ended = time.monotonic()
            wait_until(lambda: not self._left_from_before(ended), BACKLOG_SECONDS)
        except _FAILURES as error:
            result.problem = result.problem or f"put back: {type(error).__name__}: {error}"
        self._goodput.well()
        result.load_a_core = os.getloadavg()[0] / (os.cpu_count() or 1)
        return result

    def _drill(self, pathology: Pathology, result: Result) -> None:
        if not wait_until(lambda: not standing(self.lab.rest), _QUIET_WINDOWS * self.lab.window_seconds):
            result.problem = f"before it {', '.join(each.detector for each in standing(self.lab.rest))} stood"
        self.say("goodput before")
        time.sleep(self._goodput.lacking_seconds)
        self._goodput.wrong()
        result.goodput_before = self._goodput.before()
        self.say("inject")
        before = set(standing(self.lab.rest))
        self._injection.begin(pathology)
        watch = Watch(self.lab.rest, before)
        found = self._find(pathology, watch, result)
        result.goodput_injected = self._goodput.lately(time.monotonic() - watch.since)
        if found is not None:
            self._move(pathology, found, watch, result)
        result.others = {name: at for name, at in watch.seconds_to.items() if name != pathology.name}

    def _find(self, pathology: Pathology, watch: Watch, result: Result) -> Found | None:
        self.say("wait for its detector")

        def of_it(now: list[Found]) -> list[Found]:
            return [each for each in now if each.detector == pathology.name]

        windows = _FIND_WINDOWS + _MORE_FIND_WINDOWS
        if not watch.until(lambda now: bool(of_it(now)), windows * self.lab.window_seconds):
            return None
        found = min(of_it(list(watch.first)), key=lambda each: (each.subject != pathology.subject, watch.first[each]))
        result.found_seconds, result.subject = watch.first[found], found.subject
        return found

    def _move(self, pathology: Pathology, found: Found, watch: Watch, result: Result) -> None:
        """Apply a lever, dry first; see how the healthy traffic fares then, and when the finding is over."""
        whole = dict[str, Any]()

        def is_offered(_: list[Found]) -> bool:
            nonlocal whole
            whole = finding(self.lab.rest, found)
            return _chosen(whole["levers"], pathology.lever) is not None

        # A lever may need more to be known than a finding does.
        watch.until(is_offered, _FIND_WINDOWS * self.lab.window_seconds)
        result.evidence = whole["evidence"]
        lever = _chosen(whole["levers"], pathology.lever)
        if lever is None:
            known = ", ".join(f"{each['key']} ({each['state']})" for each in whole["levers"])
            result.problem = f"no lever that changes anything, of {known}"
            return
        result.lever, result.lever_said = lever["key"], lever["title"]
        self.say(f"lever: {lever['title']}")
        begun = time.monotonic()
        if _changes(lever):
            path = f"/diagnosis/findings/{found.id}/levers/{lever['key']}/apply"
            self.lab.rest.post(path, dry_run="true")
            self.lab.rest.post(path, wait="applied")
            self._carry_out(lever)
        else:
            self._injection.follow()
        all_run_it = time.monotonic()
        self.say("wait until those from before are served or gone")
        watch.until(lambda _: not self._left_from_before(all_run_it), BACKLOG_SECONDS)
        result.backlog_left = self._left_from_before(all_run_it)
        settled = time.monotonic()
        result.backlog_seconds = settled - all_run_it
        self.say(f"goodput with the lever, {result.backlog_left} from before left")
        clears_by = all_run_it + _CLEAR_WINDOWS * self.lab.window_seconds

        def is_over(now: list[Found]) -> bool:
            return not any(each.detector == pathology.name for each in now)

        if watch.until(is_over, max(0.0, clears_by - time.monotonic())):
            result.cleared_seconds = time.monotonic() - begun
        if self.measure_seconds:
            until = settled + self.measure_seconds
            watch.until(lambda _: False, max(0.0, until + ENDED_SECONDS - time.monotonic()))
            result.goodput_after = self._goodput.since(settled)
            result.endings_after = {kind: dict(self.clients.endings(settled, until, [kind])) for kind in HEALTHY}
            self.say(
                "how they ended: "
                + "; ".join(
                    f"{kind} {', '.join(f'{count} {how}' for how, count in endings.items())}"
                    for kind, endings in result.endings_after.items()
                )
            )

    def _left_from_before(self, moment: float) -> int:
        """Strangers who came before that moment and are not gone, and others who are not served."""
        return self.clients.left_from_before(moment, HEALTHY)

    def _carry_out(self, lever: dict[str, Any]) -> None:
        """What a lever leaves to people: put an engine back that was drained, roll out what a pool desires."""
        rest = self.lab.rest
        touched = sorted({each["subject"].partition("/")[2] for each in lever["commands"]})
        if touched:
            self.say(f"acts on {', '.join(touched)}")
            acts.wait_for_acts(rest)
            for name in touched:
                if name in ENGINES and rest.get(f"/engines/{name}")["cordoned"]:
                    rest.post(f"/engines/{name}/uncordon")
        pools = [edit["key"] for edit in lever["edits"] if "engine_arguments" in edit["changes"]]
        for pool in pools:
            desired = rest.get(f"/pools/{pool}")["engine_arguments"]
            self.say(f"restart the other engines of {pool} with what it desires")
            left = [name for name, engine in ENGINES.items() if engine.pool == pool and name not in touched]
            acts.restart(rest, left, desired)


def _changes(lever: Mapping[str, Any]) -> bool:
    """Whether it does something by itself; what does not is advice."""
    return bool(lever["edits"] or lever["commands"])


def _chosen(levers: Sequence[dict[str, Any]], key: str) -> dict[str, Any] | None:
    """The one of that key, or else the first that changes anything; of those that are offered now."""
    offered = (each for each in levers if each["state"] == "proposed")
    return next((each for each in offered if (each["key"] == key if key else _changes(each))), None)
