"""The runbooks of the default rules: one page of Markdown an alert, beside the rules, and the list of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

PACK = Path(__file__).resolve().parent / "pack"
_FOLDER = PACK / "runbooks"
# Where the documentation has them, and so the rules' `runbook_url`; the control plane shows them there, too.
PATH = "docs/runbooks/"
_SLUG = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_THEMES = {
    "slo": "Promises",
    "capacity": "Capacity",
    "admission": "Refusals and failures",
    "engines": "Engines",
    "gpu_errors": "Errors of GPUs",
    "gpu_memory": "Memory of GPUs",
    "gpu_clocks": "Clocks of GPUs",
    "links_and_hosts": "Links and hosts",
    "told_by_events": "Told by events: rules for those who evaluate elsewhere",
    "targets": "Gateways and nodes",
    "control_plane": "The control plane itself",
    "tenants": "Tenants",
}
_INDEX_HEAD = """\
# Runbooks

One page for each alert of [the default rules](../rules.md#the-pack): what it means, what to look at, what to do, and
when it is a false alarm. `api` and `$HEADWORKS` are [those of the REST interface](../rest.md); names in capitals, such
as POOL, stand for those of the alert's labels.
"""


# What an agent tells at once by an event has the runbook of the rule that watches the same.
_OF_EVENTS = {
    "GpuLost": "gpu-unreachable",
    "GpuUnresponsive": "gpu-unreachable",
    "GpuError": "gpu-unreachable",
    "NvmlFailed": "gpu-unreachable",
    "NvSwitchSxid": "nv-switch-errors",
    "EngineDown": "engine-unavailable",
    "EngineHung": "engine-stalled",
    "EngineRestarted": "engine-restarting",
    "EngineProbeFailed": "engine-probe-failing",
}
_XID_CLASS = re.compile(r": class (\w+), action ")


class Entry(NamedTuple):
    """`slug`: the page's name. `says`: its first sentence."""

    alertname: str
    slug: str
    severity: str
    says: str


def slug_of(alertname: str) -> str:
    """`KvCacheFull` → `kv-cache-full`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", alertname).lower()


def page(slug: str) -> str | None:
    """A runbook's Markdown; None where there is none of this name."""
    file = _FOLDER / f"{slug}.md"
    return file.read_text(encoding="utf-8") if _SLUG.fullmatch(slug) and file.is_file() else None


def of_event(alertname: str, detail: str) -> dict[str, str]:
    """The annotation `runbook_url` of an alert that an event opened; nothing where there is no runbook for it.

    Of an XID the one of its class, which its agent names in the event's `detail`.
    """
    slug = _OF_EVENTS.get(alertname, "")
    if alertname == "GpuXid":
        named = _XID_CLASS.search(detail)
        slug = f"gpu-xid-{named[1]}" if named and page(f"gpu-xid-{named[1]}") else "gpu-xid-unknown"
    return {"runbook_url": f"{PATH}{slug}.md"} if slug else {}


def slug_in(runbook_url: str) -> str:
    """Which of these a rule's `runbook_url` leads to; empty: none."""
    slug = runbook_url.removeprefix(PATH).removesuffix(".md")
    return slug if runbook_url.startswith(PATH) and _SLUG.fullmatch(slug) else ""


def address(runbook_url: str, public_url: str) -> str:
    """Where a rule's `runbook_url` leads from outside; empty: nowhere that can be opened."""
    if runbook_url.startswith(("https://", "http://")):
        return runbook_url
    slug = slug_in(runbook_url)
    return f"{public_url}/{PATH}{slug}/" if slug and public_url else ""


def by_theme() -> Iterator[tuple[str, list[Entry]]]:
    """Each theme's title and runbooks, in the order of the rules."""
    for theme, title in _THEMES.items():
        groups = yaml.safe_load((PACK / f"{theme}.yml").read_text(encoding="utf-8"))["groups"]
        yield title, [_entry(rule) for group in groups for rule in group["rules"]]


def index_page() -> str:
    """The list of them as Markdown, for the documentation."""
    lines = [_INDEX_HEAD]
    for title, entries in by_theme():
        lines += [f"## {title}", "", "| alert | severity | |", "|---|---|---|"]
        lines += [f"| [{each.alertname}]({each.slug}.md) | {each.severity} | {each.says} |" for each in entries]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def pages() -> dict[str, str]:
    """Every page by its file's name, the list among them."""
    found = {file.name: file.read_text(encoding="utf-8") for file in sorted(_FOLDER.glob("*.md"))}
    return {**found, "index.md": index_page()}


def _entry(rule: dict[str, Any]) -> Entry:
    alertname = rule["alert"]
    slug = slug_of(alertname)
    paragraph = (page(slug) or "\n\n").split("\n\n")[1].replace("\n", " ")
    says = re.split(r"(?<=[\w)%`])[.:] (?=[A-Z0-9`])", paragraph)[0].rstrip(".")
    return Entry(alertname, slug, rule["labels"]["severity"], says)
