"""How states look: a shape and a word, and a colour that only repeats what they say."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

_RING = "M13.5 8a5.5 5.5 0 1 1-11 0a5.5 5.5 0 1 1 11 0"
CHECK = "M3 8.5l3.5 3.5L13 4.5"
CLOCK = f"{_RING}M8 5v3l2 1.5"
CROSS = "M4 4l8 8M12 4l-8 8"
DASH = "M3 8h10"
DOT = "M12 8a4 4 0 1 1-8 0a4 4 0 1 1 8 0"
MOON = "M13 9.5A5.5 5.5 0 1 1 6.5 3a4.5 4.5 0 0 0 6.5 6.5"
NO_ENTRY = f"{_RING}M4.2 4.2l7.6 7.6"
PAUSE = "M5.5 3.5v9M10.5 3.5v9"
TRIANGLE = "M8 2.5l6 11H2zM8 6.5v3.2"


class Look(NamedTuple):
    """`tone` is the colour's meaning; `shape` an SVG path in a field of 16 × 16."""

    tone: Literal["good", "wait", "bad", "none"]
    shape: str
    label: Any


LOOKS = {
    # The fleet, and pools, as the overview judges them
    "fleet_bad": Look("bad", TRIANGLE, _("not all right")),
    "fleet_wait": Look("wait", TRIANGLE, _("worth a look")),
    "fleet_none": Look("none", DASH, _("nothing to judge yet")),
    "fleet_good": Look("good", CHECK, _("all right")),
    "pool_down": Look("bad", CROSS, pgettext_lazy("pool", "down")),
    "pool_missed": Look("bad", TRIANGLE, _("promise missed")),
    "pool_tight": Look("wait", TRIANGLE, _("tight")),
    "pool_stale": Look("none", CLOCK, _("stale")),
    "pool_unmeasured": Look("none", DASH, _("not measured")),
    "pool_empty": Look("none", DASH, _("no engine")),
    "pool_ok": Look("good", DOT, _("ok")),
    "to_do": Look("none", DOT, _("to do")),
    # Targets
    "applied": Look("good", CHECK, _("applied")),
    "pending": Look("wait", CLOCK, _("pending")),
    "refused": Look("bad", CROSS, _("refused")),
    "lost": Look("bad", TRIANGLE, _("lost")),
    "never": Look("none", DASH, _("runs none yet")),
    # Requests
    "admitted": Look("good", CHECK, _("admitted")),
    # Tenants and keys
    "active": Look("good", DOT, _("active")),
    "blocked": Look("bad", NO_ENTRY, _("blocked")),
    "expired": Look("none", CLOCK, _("expired")),
    # API tokens
    "revoked": Look("none", NO_ENTRY, pgettext_lazy("token", "revoked")),
    "resting": Look("wait", MOON, pgettext_lazy("token", "resting")),
    # What is judged of a provider, and of a rollout before it begins
    "verdict_good": Look("good", CHECK, pgettext_lazy("verdict", "good")),
    "verdict_wait": Look("wait", TRIANGLE, _("look twice")),
    "verdict_bad": Look("bad", CROSS, pgettext_lazy("verdict", "wrong")),
    "gate_stops": Look("bad", NO_ENTRY, pgettext_lazy("gate", "stops")),
    "gate_unknown": Look("none", DASH, pgettext_lazy("gate", "not looked at")),
    # Nodes, GPUs, engines
    "ok": Look("good", DOT, _("ok")),
    "cordoned": Look("wait", NO_ENTRY, _("cordoned")),
    "degraded": Look("bad", TRIANGLE, _("degraded")),
    "unknown": Look("none", DASH, _("unknown")),
    "unresponsive": Look("bad", CROSS, _("unresponsive")),
    "error": Look("bad", CROSS, _("error")),
    "up": Look("good", DOT, _("up")),
    "down": Look("bad", CROSS, _("down")),
    "starting": Look("wait", CLOCK, _("starting")),
    # Their breakers, where a person forced them
    "forced_open": Look("bad", NO_ENTRY, _("forced open")),
    "forced_closed": Look("wait", CHECK, _("forced closed")),
    # Conditions of engines
    "hung": Look("bad", TRIANGLE, _("hung")),
    "paused": Look("wait", PAUSE, _("paused")),
    "sleeping": Look("wait", MOON, _("sleeping")),
    "dead": Look("bad", CROSS, _("not running")),
    "unreachable": Look("bad", DASH, _("unreachable")),
    # Acts
    "running": Look("wait", CLOCK, _("running")),
    "done": Look("good", CHECK, _("done")),
    "act_refused": Look("bad", CROSS, pgettext_lazy("act", "refused")),
    "cancelled": Look("none", DASH, _("cancelled")),
    # Files of models
    "files_absent": Look("bad", DASH, _("absent")),
    "files_partial": Look("wait", CLOCK, _("incomplete")),
    "files_present": Look("wait", DOT, _("there, not read")),
    "files_whole": Look("good", CHECK, _("whole")),
    "files_damaged": Look("bad", CROSS, _("damaged")),
    # Rollouts and their steps
    "returning": Look("wait", TRIANGLE, _("returning")),
    "returned": Look("bad", DASH, _("returned")),
    "aborted": Look("none", DASH, _("aborted")),
    "skipped": Look("none", DASH, pgettext_lazy("step", "skipped")),
    # Repairs
    "held": Look("wait", PAUSE, _("held")),
    "quarantined": Look("wait", NO_ENTRY, _("quarantined")),
    "draining": Look("wait", CLOCK, _("draining")),
    "drained": Look("wait", DOT, _("drained")),
    "remediating": Look("wait", CLOCK, _("remediating")),
    "verifying": Look("wait", CLOCK, _("verifying")),
    "remediated": Look("good", CHECK, _("remediated")),
    "observed": Look("none", DOT, _("observed only")),
    "escalated": Look("bad", TRIANGLE, _("escalated")),
    # Detectors, findings, levers
    "detector_found": Look("bad", TRIANGLE, pgettext_lazy("detector", "found")),
    "detector_clear": Look("good", CHECK, pgettext_lazy("detector", "clear")),
    "detector_blind": Look("wait", DASH, pgettext_lazy("detector", "blind")),
    "detector_waiting": Look("none", CLOCK, pgettext_lazy("detector", "not looked yet")),
    "finding_open": Look("bad", TRIANGLE, pgettext_lazy("finding", "found")),
    "finding_cleared": Look("good", CHECK, pgettext_lazy("finding", "over")),
    "lever_proposed": Look("none", DOT, _("proposed")),
    "lever_applied": Look("wait", CLOCK, _("applied")),
    "lever_verifying": Look("wait", CLOCK, _("verifying")),
    "lever_held": Look("good", CHECK, pgettext_lazy("lever", "held")),
    "lever_offered_back": Look("bad", TRIANGLE, _("offered back")),
    "lever_failed": Look("bad", CROSS, _("failed")),
    "lever_reverted": Look("none", DASH, _("reverted")),
    "lever_superseded": Look("none", DASH, _("superseded")),
    "lever_dismissed": Look("none", DASH, _("dismissed")),
    # Batches
    "validating": Look("wait", CLOCK, _("reading the file")),
    "in_progress": Look("wait", CLOCK, _("in progress")),
    "finalizing": Look("wait", CLOCK, _("writing the output")),
    "completed": Look("good", CHECK, _("completed")),
    "cancelling": Look("wait", DASH, _("cancelling")),
    # Incidents and their severities
    "resolved": Look("good", CHECK, _("resolved")),
    "critical": Look("bad", TRIANGLE, _("critical")),
    "warning": Look("wait", TRIANGLE, _("warning")),
    "info": Look("none", DOT, _("info")),
    # Rules
    "rule_firing": Look("bad", TRIANGLE, pgettext_lazy("rule", "firing")),
    "rule_inactive": Look("good", CHECK, pgettext_lazy("rule", "inactive")),
    # Silences
    "silence_active": Look("wait", PAUSE, pgettext_lazy("silence", "on")),
    "silence_waiting": Look("none", CLOCK, pgettext_lazy("silence", "later")),
    "silence_ended": Look("none", DASH, pgettext_lazy("silence", "over")),
    # Deliveries and receivers
    "delivered": Look("good", CHECK, _("delivered")),
    "waiting": Look("wait", CLOCK, _("waiting")),
    "failed": Look("bad", CROSS, _("failed")),
    "overtaken": Look("none", DASH, _("overtaken")),
    "left_alone": Look("bad", NO_ENTRY, pgettext_lazy("receiver", "left alone")),
    "taken": Look("good", CHECK, _("taken")),
    # What the tester says of a request, and breakers as gateways tell of them
    "route_matched": Look("good", CHECK, pgettext_lazy("rule", "matches")),
    "route_refused": Look("bad", NO_ENTRY, pgettext_lazy("request", "refused")),
    "route_empty": Look("bad", TRIANGLE, _("no engine takes work")),
    "breaker_closed": Look("good", CHECK, pgettext_lazy("breaker", "closed")),
    "breaker_open": Look("bad", NO_ENTRY, pgettext_lazy("breaker", "open")),
    # Stages
    "stage_running": Look("wait", CLOCK, pgettext_lazy("stage", "running")),
    "stage_promoted": Look("good", CHECK, pgettext_lazy("stage", "given to all")),
    "stage_taken_back": Look("none", DASH, pgettext_lazy("stage", "taken back")),
    "shadowed": Look("none", DASH, _("a stricter one holds")),
    "limited": Look("wait", DOT, _("other limits")),
    "breaker_half_open": Look("wait", CLOCK, pgettext_lazy("breaker", "trying")),
    "on": Look("good", DOT, _("on")),
    "off": Look("none", DASH, _("off")),
}
# Where there is room for a few letters only, as in a GPU's cell.
SHORT_LABELS = {"unresponsive": _("hung")}


def look_of(state: str) -> Look:
    """A state without a look of its own, as a later version may have, shows its name."""
    return LOOKS.get(state) or Look("none", DASH, state)
