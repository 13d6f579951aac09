"""The runbooks of the default rules: one page of Markdown an alert, beside the rules, and the list of them.

Each is written in LANGUAGE, and said in the other languages by the file of the same name in their folders.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

PACK = Path(__file__).resolve().parent / "pack"
_FOLDER = PACK / "runbooks"
LANGUAGE = "en"
# Where the documentation has them, and so the rules' `runbook_url`; the control plane shows them there, too.
PATH = "docs/runbooks/"
_SLUG = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_SENTENCE_END = re.compile(r"(?<=[\w)%`])[.:] (?=[A-ZÇĞİÖŞÜ0-9`])")
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
as POOL, stand for those of the alert's labels. They are [in Turkish](tr/), too: the control plane shows them in the
reader's language.
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


class Text(NamedTuple):
    """A runbook's Markdown, and what language it is in."""

    markdown: str
    language: str


class Entry(NamedTuple):
    """`slug`: the page's name. `says`: its first sentence, in `language`."""

    alertname: str
    slug: str
    severity: str
    says: str
    language: str


def slug_of(alertname: str) -> str:
    """`KvCacheFull` → `kv-cache-full`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", alertname).lower()


def page(slug: str, language: str = LANGUAGE) -> Text | None:
    """A runbook in this language, else in the one that it was written in; None where there is none of this name."""
    if not _SLUG.fullmatch(slug):
        return None
    for folder, found in ((_FOLDER / language, language), (_FOLDER, LANGUAGE)):
        file = folder / f"{slug}.md"
        if file.is_file():
            return Text(file.read_text(encoding="utf-8"), found)
    return None


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


def by_theme(language: str = LANGUAGE) -> Iterator[tuple[str, list[Entry]]]:
    """Each theme's title and runbooks, in the order of the rules."""
    for theme, title in _THEMES.items():
        groups = yaml.safe_load((PACK / f"{theme}.yml").read_text(encoding="utf-8"))["groups"]
        yield title, [_entry(rule, language) for group in groups for rule in group["rules"]]


def index_page() -> str:
    """The list of them as Markdown, for the documentation."""
    lines = [_INDEX_HEAD]
    for title, entries in by_theme():
        lines += [f"## {title}", "", "| alert | severity | |", "|---|---|---|"]
        lines += [f"| [{each.alertname}]({each.slug}.md) | {each.severity} | {each.says} |" for each in entries]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def pages() -> dict[str, str]:
    """Every page by its file's path in docs/runbooks, the list among them."""
    found = {file.relative_to(_FOLDER).as_posix(): file for file in sorted(_FOLDER.rglob("*.md"))}
    texts = {name: file.read_text(encoding="utf-8") for name, file in found.items()}
    # The folders of other languages lie one deeper than what a runbook's links are written for.
    texts |= {name: text.replace("](../", "](../../") for name, text in texts.items() if "/" in name}
    return {**texts, "index.md": index_page()}


def _entry(rule: dict[str, Any], language: str) -> Entry:
    alertname = rule["alert"]
    slug = slug_of(alertname)
    text = page(slug, language) or Text("\n\n", LANGUAGE)
    paragraph = text.markdown.split("\n\n")[1].replace("\n", " ")
    says = _SENTENCE_END.split(paragraph)[0].rstrip(".")
    return Entry(alertname, slug, rule["labels"]["severity"], says, text.language)
