"""`headworks demo --check`: walk through the product's loops on a real fleet, print each step with its time.

Every step asserts what an operator relies on; the first that does not hold ends the check with exit status 1.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controlplane.demo import MODEL, Fleet, Ports, Profile, build, start_traffic
from controlplane.processes import StartFailed, Supervisor

LIMITED, OTHER = "support", "research"
# Room for one small answer (a prompt of some tokens and max_tokens 16), not for two at once.
LOW_TPM_LIMIT = 60
DURATION = re.compile(r"^(\d+ms|(\d+h)?(\d+m)?\d+(\.\d+)?s)$")


class NotHeld(AssertionError):
    """A step's promise was broken; the message says what was seen."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: Any

    @property
    def code(self) -> str | None:
        """The refusal's named reason, where it is one."""
        return self.body.get("error", {}).get("code") if isinstance(self.body, dict) else None


def chat(fleet: Fleet, tenant: str, *, timeout_seconds: float = 30) -> Answer:
    """One small chat request through the gateway with the tenant's key."""
    body = {"model": MODEL, "max_tokens": 16, "messages": [{"role": "user", "content": "What limits the fleet now?"}]}
    request = urllib.request.Request(  # noqa: S310
        f"{fleet.gateway_address}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {fleet.keys[tenant]}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout_seconds) as answer:  # noqa: S310
            return Answer(answer.status, {k.lower(): v for k, v in answer.headers.items()}, json.loads(answer.read()))
    except urllib.error.HTTPError as error:
        text = error.read()
        return Answer(error.code, {k.lower(): v for k, v in error.headers.items()}, json.loads(text) if text else None)


class Steps:
    """Prints each step as it ends, with how long it took."""

    def __init__(self) -> None:
        self.count = 0

    def run(self, what: str, action: Callable[[], str | None]) -> None:
        start = time.monotonic()
        try:
            seen = action()
        except (NotHeld, StartFailed, OSError, RuntimeError) as error:
            print(f"  FAIL  {time.monotonic() - start:7.3f} s  {what}\n        {error}", flush=True)
            raise NotHeld(what) from error
        self.count += 1
        print(f"  ok    {time.monotonic() - start:7.3f} s  {what}{f': {seen}' if seen else ''}", flush=True)


def expect(holds: bool, otherwise: object) -> None:
    if not holds:
        raise NotHeld(str(otherwise))


def wait_until(condition: Callable[[], bool], what: str, timeout_seconds: float = 20) -> None:
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        expect(time.monotonic() < deadline, f"not within {timeout_seconds:.0f} s: {what}")
        time.sleep(0.05)


def all_converged(fleet: Fleet) -> bool:
    targets = fleet.rest.get("/config/convergence")["targets"]
    return bool(targets) and all(target["state"] == "applied" for target in targets)


def served(fleet: Fleet, tenant: str) -> str:
    answer = chat(fleet, tenant)
    expect(answer.status == 200, f"{tenant} got {answer.status} {answer.body}")
    return f"{tenant} 200"


def refused_for_quota(fleet: Fleet, tenant: str) -> str:
    """The tenant meets its token limit within a few requests, and the refusal carries all it should."""
    # What is left of the bucket may hold one more small request; it refills slower than requests come.
    answers = [chat(fleet, tenant) for _ in range(4)]
    refusals = [answer for answer in answers if answer.status == 429]
    expect(bool(refusals), f"{tenant} was not refused: {[answer.status for answer in answers]}")
    answer = refusals[-1]
    expect(answer.code == "tpm_limit", f"the refusal is named {answer.code!r}: {answer.body}")
    headers = answer.headers
    expect(
        headers.get("retry-after", "").isdigit(), f"Retry-After is {headers.get('retry-after')!r}, not whole seconds"
    )
    expect(
        headers.get("x-ratelimit-limit-tokens") == str(LOW_TPM_LIMIT),
        f"x-ratelimit-limit-tokens: {headers.get('x-ratelimit-limit-tokens')!r}",
    )
    expect(headers.get("x-ratelimit-remaining-tokens", "").isdigit(), "x-ratelimit-remaining-tokens is missing")
    reset = headers.get("x-ratelimit-reset-tokens", "")
    expect(bool(DURATION.match(reset)), f"x-ratelimit-reset-tokens is {reset!r}, not a duration")
    expect("x-request-id" in headers and "x-headworks-revision" in headers, f"headers are missing: {sorted(headers)}")
    return (
        f"{tenant} 429 {answer.code}, Retry-After {headers['retry-after']}, revision {headers['x-headworks-revision']}"
    )


def quota_loop(fleet: Fleet, steps: Steps) -> None:
    """A quota change reaches the gateway, bites, outlives the control plane, and is taken back."""
    before: dict[str, int] = {}

    def note_revision() -> str:
        wait_until(lambda: all_converged(fleet), "all targets run the newest revision")
        before["revision"] = fleet.rest.get("/config/convergence")["revision"]
        return f"revision {before['revision']}"

    def lower() -> str:
        written = fleet.rest.patch(
            f"/tenants/{LIMITED}",
            {"tpm_limit": LOW_TPM_LIMIT},
            reason="check: lower the limit",
            wait="applied",
            timeout=10,
        )
        stands = written["convergence"]
        expect(not stands["pending"] and not stands["refused"], f"not applied everywhere: {stands}")
        expect(stands["revision"] > before["revision"], f"no new revision: {stands}")
        reached = f"{stands['applied']} of {stands['targets']} targets after {stands['waited_ms']} ms"
        return f"revision {stands['revision']} on {reached}"

    def control_plane_away() -> str:
        for name in ("web", "worker"):
            fleet.children[name].kill()
        return f"{served(fleet, OTHER)}; {refused_for_quota(fleet, LIMITED)}"

    def gateway_restarts() -> str:
        fleet.children["gateway-1"].kill()
        fleet.restart("gateway-1")
        return served(fleet, OTHER)

    def comes_back() -> str:
        for name in ("web", "worker"):
            fleet.restart(name)
        wait_until(lambda: all_converged(fleet), "all targets run the newest revision")
        return f"{len(fleet.rest.get('/config/convergence')['targets'])} targets"

    def roll_back() -> str:
        written = fleet.rest.post(
            f"/revisions/{before['revision']}/rollback", reason="check: take it back", wait="applied", timeout=10
        )
        stands = written["convergence"]
        expect(not stands["pending"] and not stands["refused"], f"not applied everywhere: {stands}")
        for _ in range(4):
            served(fleet, LIMITED)
        return f"revision {stands['revision']}; {LIMITED} 200, four times"

    steps.run("all targets run the newest revision", note_revision)
    steps.run("both tenants are served", lambda: f"{served(fleet, LIMITED)}, {served(fleet, OTHER)}")
    steps.run(f"the limit of {LIMITED} is lowered to {LOW_TPM_LIMIT} tokens a minute", lower)
    steps.run("that tenant is refused", lambda: refused_for_quota(fleet, LIMITED))
    steps.run("no other tenant is", lambda: served(fleet, OTHER))
    steps.run("web and worker are killed: traffic and limits go on", control_plane_away)
    steps.run("the gateway is killed and restarts without them", gateway_restarts)
    steps.run("the limit still holds after the restart", lambda: refused_for_quota(fleet, LIMITED))
    steps.run("the control plane returns and all converge", comes_back)
    steps.run("the change is rolled back", roll_back)


LOOPS: dict[str, Callable[[Fleet, Steps], None]] = {"quota": quota_loop}


def run_check(loop: str, profile: Profile) -> int:
    """Run one loop, or all; 0 only if every step held."""
    chosen = LOOPS if loop == "all" else {loop: LOOPS[loop]}
    steps = Steps()
    with tempfile.TemporaryDirectory(prefix="headworks-check-") as name, Supervisor() as supervisor:
        started: list[Fleet] = []

        def start() -> str:
            started.append(build(Path(name), Ports.free(), supervisor, profile))
            return f"{len(supervisor.children)} processes"

        try:
            steps.run("the fleet starts", start)
            fleet = started[0]
            steps.run("traffic of the other tenants runs", lambda: start_traffic(fleet, without=LIMITED))
            for title, walk in chosen.items():
                print(f"loop: {title}", flush=True)
                walk(fleet, steps)
        except NotHeld as error:
            print(f"check failed at: {error}", file=sys.stderr)
            for child in supervisor.children:
                print(
                    f"--- {child.name} ({'running' if child.running else 'ended'})\n{child.log_tail(12)}",
                    file=sys.stderr,
                )
            return 1
    print(f"All {steps.count} steps held.")
    return 0
