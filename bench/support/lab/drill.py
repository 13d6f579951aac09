"""One pathology from its injection to the proof that its lever moved it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.support.control_plane import wait_until
from bench.support.lab import acts
from bench.support.lab.clients import Clients
from bench.support.lab.findings import Found, Watch, finding, standing
from bench.support.lab.fleet import Lab
from bench.support.lab.healthy import HEALTHY
from bench.support.lab.injection import Injection
from bench.support.lab.pathology import Pathology
from bench.support.lab.plan import ENGINES
from controlplane.rest_client import RestError

# Detection may take two windows, clearing as much as a verification waits for.
_FIND_WINDOWS, _MORE_FIND_WINDOWS, _CLEAR_WINDOWS = 2.0, 1.0, 4.0
_QUIET_WINDOWS = 4.0
# Requests that were sent so long ago have ended, but for few.
_ENDED_SECONDS = 12.0


@dataclass
class Result:
    """What was seen. Seconds are counted from the injection, and for `cleared_seconds` from the lever; None: never.

    Goodput is of the healthy traffic, in good answers a second; `endings_after`: how all of it ended with the lever
    applied. `others`: what else fired, and when.
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
    endings_after: dict[str, int] = field(default_factory=dict)
    evidence: list[dict[str, Any]] = field(default_factory=list)
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
        self._well_since = time.monotonic()

    def healthy(self, seconds: float) -> Result:
        """Nothing is injected, and nothing may fire."""
        watch = Watch(self.lab.rest)
        watch.until(lambda _: False, seconds)
        now = time.monotonic()
        goodput = self.clients.goodput(watch.since, now - _ENDED_SECONDS, HEALTHY)
        return Result("healthy", others=watch.seconds_to, goodput_before=goodput)

    def run(self, pathology: Pathology) -> Result:
        result = Result(pathology.name)
        window = self.lab.window_seconds
        try:
            if not wait_until(lambda: not standing(self.lab.rest), _QUIET_WINDOWS * window):
                result.problem = f"before it {', '.join(each.detector for each in standing(self.lab.rest))} stood"
            self.say("goodput before")
            result.goodput_before = self._measured(self._well_since)
            self.say("inject")
            before = set(standing(self.lab.rest))
            self._injection.begin(pathology)
            watch = Watch(self.lab.rest, before)
            found = self._find(pathology, watch, result)
            result.goodput_injected = self._lately(min(self.measure_seconds, time.monotonic() - watch.since))
            if found is not None:
                self._move(pathology, found, watch, result)
            result.others = {name: at for name, at in watch.seconds_to.items() if name != pathology.name}
        except (RestError, RuntimeError, OSError, SystemExit) as error:
            # SystemExit: an engine that did not start (engine_control).
            result.problem = f"{type(error).__name__}: {error}"
        finally:
            self.say("back to a healthy day")
            self._injection.end()
            self._well_since = time.monotonic()
        return result

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
        """Apply a lever, dry first; wait until the finding is over; see how the healthy traffic fares then."""
        whole = finding(self.lab.rest, found)
        result.evidence = whole["evidence"]
        lever = _chosen(whole["levers"], pathology.lever)
        if lever is None:
            result.problem = "no lever that changes anything, of " + ", ".join(each["key"] for each in whole["levers"])
            return
        result.lever, result.lever_said = lever["key"], lever["title"]
        self.say(f"lever: {lever['title']}")
        if _changes(lever):
            path = f"/diagnosis/findings/{found.id}/levers/{lever['key']}/apply"
            self.lab.rest.post(path, dry_run="true")
            self.lab.rest.post(path)
            applied = time.monotonic()
            self._carry_out(lever)
        else:
            applied = time.monotonic()
            self._injection.follow()

        def is_over(now: list[Found]) -> bool:
            return not any(each.detector == pathology.name for each in now)

        self.say("wait until it is over")
        if watch.until(is_over, _CLEAR_WINDOWS * self.lab.window_seconds):
            result.cleared_seconds = time.monotonic() - applied
        result.goodput_after = self._measured(time.monotonic() - _ENDED_SECONDS / 2, watch)
        until = time.monotonic() - _ENDED_SECONDS
        result.endings_after = dict(self.clients.endings(until - self.measure_seconds, until, HEALTHY))

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

    def _measured(self, since: float, watch: Watch | None = None) -> float:
        """Goodput of `measure_seconds` from `since` on, or later, once what was sent then has ended."""
        if not self.measure_seconds:
            return 0.0
        wait_seconds = since + self.measure_seconds + _ENDED_SECONDS - time.monotonic()
        if watch is not None:
            watch.until(lambda _: False, max(0.0, wait_seconds))
        else:
            time.sleep(max(0.0, wait_seconds))
        return self._lately(self.measure_seconds)

    def _lately(self, seconds: float) -> float:
        until = time.monotonic() - _ENDED_SECONDS
        return self.clients.goodput(until - seconds, until, HEALTHY) if seconds > 0 else 0.0


def _changes(lever: Mapping[str, Any]) -> bool:
    """Whether it does something by itself; what does not is advice."""
    return bool(lever["edits"] or lever["commands"])


def _chosen(levers: Sequence[dict[str, Any]], key: str) -> dict[str, Any] | None:
    wanted = (each for each in levers if (each["key"] == key if key else _changes(each)))
    return next(wanted, None)
