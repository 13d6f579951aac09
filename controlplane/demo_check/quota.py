"""The quota loop: a lowered limit reaches the gateway, bites, outlives the control plane, and is taken back."""

from __future__ import annotations

import re

from controlplane.demo.fleet import Fleet
from controlplane.demo.plan import GATEWAY
from controlplane.demo_check.clients import chat, served
from controlplane.demo_check.observe import applied_everywhere, converge
from controlplane.demo_check.steps import Steps, expect

LIMITED, OTHER = "support", "research"
# Room for one small answer (a prompt of some tokens and max_tokens 16), not for two at once.
LOW_TPM_LIMIT = 60
DURATION = re.compile(r"^(\d+ms|(\d+h)?(\d+m)?\d+(\.\d+)?s)$")


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
        converge(fleet)
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
        stands = applied_everywhere(written)
        expect(stands["revision"] > before["revision"], f"no new revision: {stands}")
        reached = f"{stands['applied']} of {stands['targets']} targets after {stands['waited_ms']} ms"
        return f"revision {stands['revision']} on {reached}"

    def control_plane_away() -> str:
        for name in ("web", "worker"):
            fleet.children[name].kill()
        return f"{served(fleet, OTHER)}; {refused_for_quota(fleet, LIMITED)}"

    def gateway_restarts() -> str:
        fleet.children[GATEWAY].kill()
        fleet.restart(GATEWAY)
        return served(fleet, OTHER)

    def comes_back() -> str:
        for name in ("web", "worker"):
            fleet.restart(name)
        return converge(fleet)

    def roll_back() -> str:
        written = fleet.rest.post(
            f"/revisions/{before['revision']}/rollback", reason="check: take it back", wait="applied", timeout=10
        )
        stands = applied_everywhere(written)
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
