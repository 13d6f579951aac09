"""What things are called on pages: in English in the audit and the configuration, here in the reader's language."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop


class ActionLabel(NamedTuple):
    """What an action is called, and what it does."""

    name: Any
    what: Any


# By the name in `wire.acts`.
ACTIONS = {
    "sleep": ActionLabel(
        gettext_lazy("Put to sleep"), gettext_lazy("Gives the GPU's memory back; requests must go elsewhere first.")
    ),
    "wake": ActionLabel(gettext_lazy("Wake"), gettext_lazy("Ends a sleep.")),
    "pause": ActionLabel(gettext_lazy("Pause"), gettext_lazy("Stops generating; new requests wait in the engine.")),
    "resume": ActionLabel(gettext_lazy("Resume"), gettext_lazy("Ends a pause.")),
    "reset_prefix_cache": ActionLabel(
        gettext_lazy("Reset the prefix cache"), gettext_lazy("Forgets cached prefixes; the next prompts are slower.")
    ),
    "load_lora": ActionLabel(
        gettext_lazy("Load a LoRA adapter"), gettext_lazy("Serves an adapter of the node's disk under its own name.")
    ),
    "unload_lora": ActionLabel(
        gettext_lazy("Unload a LoRA adapter"), gettext_lazy("Requests for the adapter fail from then on.")
    ),
    "load_model": ActionLabel(
        gettext_lazy("Load a model"), gettext_lazy("Loads a model of Triton's repository, or loads it anew.")
    ),
    "unload_model": ActionLabel(
        gettext_lazy("Unload a model"), gettext_lazy("Requests for the model fail from then on.")
    ),
    "drain": ActionLabel(
        gettext_lazy("Drain"), gettext_lazy("Cordons the engine, then waits until no request runs in it.")
    ),
    "restart": ActionLabel(
        gettext_lazy("Restart"), gettext_lazy("Restarts the engine by its node's own command; what runs is lost.")
    ),
    "start": ActionLabel(
        gettext_lazy("Start"), gettext_lazy("Starts an engine that does not run by its node's own command.")
    ),
    "stop": ActionLabel(
        gettext_lazy("Stop"), gettext_lazy("Ends a cordoned engine by its node's own command; what runs is lost.")
    ),
    "warm_up": ActionLabel(
        gettext_lazy("Warm up"),
        gettext_lazy("Sends the engine a few requests, so that the first client does not wait."),
    ),
    "fetch_model": ActionLabel(
        gettext_lazy("Fetch a model's files"), gettext_lazy("Runs the site's own command, and sees that all are whole.")
    ),
    "check_model": ActionLabel(
        gettext_lazy("Check a model's files"), gettext_lazy("Reads every file, and sees that all are whole.")
    ),
    "release_gpus": ActionLabel(
        gettext_lazy("Release the GPUs"), gettext_lazy("Closes NVML, so that a GPU can be reset or sliced anew.")
    ),
    "take_up_gpus": ActionLabel(gettext_lazy("Take up the GPUs"), gettext_lazy("Opens NVML again.")),
    "reset_gpu": ActionLabel(
        gettext_lazy("Reset a GPU"), gettext_lazy("Runs the site's own command; whatever uses the GPU is lost.")
    ),
    "reboot": ActionLabel(
        gettext_lazy("Reboot the node"), gettext_lazy("Runs the site's own command; whatever runs on the node is lost.")
    ),
}
# What else a fault of the hardware may ask for, by the name in `remediation.causes`.
_REPAIRS = {
    "none": gettext_lazy("Nothing"),
    "restart_engines": gettext_lazy("Restart the engines"),
    "support": gettext_lazy("Ask the vendor"),
}
# What an action's argument is called, and how it is given.
ARGUMENTS = {
    "level": (gettext_lazy("Level"), gettext_lazy("1 keeps the weights in host memory, 2 drops them.")),
    "mode": (
        gettext_lazy("What runs"),
        gettext_lazy("abort ends it, wait lets it end by itself, keep holds it where it stands."),
    ),
    "adapter": (gettext_lazy("Adapter"), gettext_lazy("The name that clients send.")),
    "path": (gettext_lazy("Folder"), gettext_lazy("On the node, within what its policy allows.")),
    "model": (gettext_lazy("Model"), gettext_lazy("As Triton's repository names it.")),
    "arguments": (
        gettext_lazy("New arguments"),
        gettext_lazy("One a line as name=value, such as max-num-seqs=64. Empty: as it was."),
    ),
    "limit_seconds": (gettext_lazy("Limit (seconds)"), gettext_lazy("What is not done by then has failed.")),
    "prompt": (gettext_lazy("Prompt"), gettext_lazy("What each request asks. Empty: some words of its own.")),
    "schema": (gettext_lazy("Schema of the answer"), gettext_lazy("JSON Schema. Empty: none.")),
    "requests": (gettext_lazy("Requests"), gettext_lazy("One after another, 64 at most.")),
    "max_tokens": (gettext_lazy("Tokens of each answer"), gettext_lazy("64 at most.")),
    "manifest": (gettext_lazy("Manifest"), gettext_lazy("Its SHA-256, as it was uploaded.")),
    "folder": (gettext_lazy("Folder"), gettext_lazy("On the node, within what its policy allows.")),
    "gpu": (gettext_lazy("GPU"), gettext_lazy("Its UUID, as the node's page shows it.")),
}

# What audit entries are about.
NOUNS = {
    gettext_noop("act"),
    gettext_noop("alert route"),
    gettext_noop("alias"),
    gettext_noop("api token"),
    gettext_noop("artifact"),
    gettext_noop("batch"),
    gettext_noop("cache policy"),
    gettext_noop("cordon policy"),
    gettext_noop("compatibility rule"),
    gettext_noop("delivery"),
    gettext_noop("engine"),
    gettext_noop("incident"),
    gettext_noop("inhibition"),
    gettext_noop("join token"),
    gettext_noop("key"),
    gettext_noop("maintenance window"),
    gettext_noop("model"),
    gettext_noop("model version"),
    gettext_noop("metric writer"),
    gettext_noop("node"),
    gettext_noop("override"),
    gettext_noop("pool"),
    gettext_noop("priority class"),
    gettext_noop("receiver"),
    gettext_noop("recording rules"),
    gettext_noop("rollback"),
    gettext_noop("remediation"),
    gettext_noop("remediation policy"),
    gettext_noop("lever"),
    gettext_noop("lever policy"),
    gettext_noop("rollout"),
    gettext_noop("route"),
    gettext_noop("rule"),
    gettext_noop("session limits"),
    gettext_noop("silence"),
    gettext_noop("stage"),
    gettext_noop("target"),
    gettext_noop("tenant"),
    gettext_noop("user"),
    gettext_noop("what_if"),
}
# Lines of an incident's time line.
ENTRY_KINDS = {
    "started": gettext_noop("started"),
    "event": gettext_noop("event"),
    "cordoned": gettext_noop("cordoned"),
    "not_cordoned": gettext_noop("not cordoned"),
    "uncordoned": gettext_noop("uncordoned"),
    "delivered": gettext_noop("delivered"),
    "delivery_failed": gettext_noop("delivery failed"),
    "resolved": gettext_noop("resolved"),
    "severity": gettext_noop("severity"),
    "alerts": gettext_noop("more alerts"),
    "alerts_ended": gettext_noop("alerts ended"),
    "muted": gettext_noop("mute"),
    "acknowledged": gettext_noop("acknowledged"),
    "assigned": gettext_noop("assigned"),
    "snoozed": gettext_noop("snoozed"),
    "comment": gettext_noop("comment"),
}
# Of an incident; a rule's may have any name, which is then shown as it is.
ANNOTATIONS = {
    "summary": gettext_noop("Summary"),
    "description": gettext_noop("Description"),
    "runbook_url": gettext_noop("Runbook"),
    "verdict": gettext_noop("Verdict"),
}
# Why an event opened an incident, by the name in `alerts.health`.
VERDICTS = {
    "hardware_fault": gettext_noop("hardware fault"),
    "leaving": gettext_noop("the machine will be taken away"),
    "critical": gettext_noop("critical"),
    "warning": gettext_noop("warning"),
}
# Who acts, where it is not a person in a browser.
ACTOR_KINDS = {
    gettext_noop("shell"),
    gettext_noop("system"),
    gettext_noop("target"),
    gettext_noop("token"),
}
# Why a node is not well, by the name in `fleet.health`: how it is said, and whether it needs a person.
HEALTH_REASONS = {
    "never_reported": (False, gettext_noop("its agent has not reported yet")),
    "agent_silent": (True, gettext_noop("its agent is silent")),
    "gpu_lost": (True, gettext_noop("%(what)s off the bus")),
    "gpu_unresponsive": (True, gettext_noop("%(what)s not answering")),
    "gpu_error": (True, gettext_noop("%(what)s answering with errors alone")),
    "gpu_problem": (True, gettext_noop("reading the GPUs: %(what)s")),
    "engine_down": (True, gettext_noop("engine down: %(what)s")),
    "engine_hung": (True, gettext_noop("engine hung: %(what)s")),
    "engine_probe_failed": (True, gettext_noop("engine failed a probe: %(what)s")),
    "engine_paused": (False, gettext_noop("engine paused: %(what)s")),
    "engine_sleeping": (False, gettext_noop("engine sleeping: %(what)s")),
    "no_gpu": (False, gettext_noop("no GPU: %(what)s")),
    "host_problem": (False, gettext_noop("not seen: %(what)s")),
    "engine_cordoned": (False, gettext_noop("engine cordoned: %(what)s")),
}
_FAULT_KINDS = {"xid": "XID", "sxid": "SXid"}
GPU_SOURCES = {"nvml": "NVML", "simulated": gettext_lazy("simulated source"), "none": gettext_lazy("no GPU")}


def health_reason_label(name: str, what: str) -> str:
    known = HEALTH_REASONS.get(name)
    return _(known[1]) % {"what": what} if known else f"{name}: {what}"


def needs_person(reason: str) -> bool:
    return reason not in HEALTH_REASONS or HEALTH_REASONS[reason][0]


def gpu_source_label(name: str) -> str:
    return str(GPU_SOURCES.get(name, name))


def action_label(action: str) -> str:
    return str(ACTIONS[action].name if action in ACTIONS else _REPAIRS.get(action, action))


def cause_label(cause: str) -> str:
    """What a repair is about, of a fault with a number in NVIDIA's own letters: XID 79."""
    kind, space, number = cause.partition(" ")
    return f"{_FAULT_KINDS.get(kind, kind)}{space}{number}"


def argument_label(name: str) -> tuple[Any, Any]:
    """What an argument is called, and how it is given."""
    return ARGUMENTS.get(name, (name, ""))


def noun_label(noun: str) -> str:
    return _(noun).replace("_", "-") if noun in NOUNS else noun


def entry_label(kind: str) -> str:
    return _(ENTRY_KINDS[kind]) if kind in ENTRY_KINDS else kind


def annotation_label(name: str) -> str:
    return _(ANNOTATIONS[name]) if name in ANNOTATIONS else name


def annotation_text(name: str, text: str) -> str:
    return _(VERDICTS[text]) if name == "verdict" and text in VERDICTS else text


def actor_label(kind: str, name: str) -> str:
    """Who acted: a person by name, others with their kind."""
    if kind == "user":
        return name
    return f"{name} ({_(kind) if kind in ACTOR_KINDS else kind})"
